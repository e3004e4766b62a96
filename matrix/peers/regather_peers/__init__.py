"""regather's Python stack: the cases of the matrix on the real packages (PyTorch DDP and FSDP2, DeepSpeed, TRL, Liger).

`python -m regather_peers.worker` takes the place of regather-worker; everything else follows from its protocol.
Nothing outside rank.py and what it imports may import torch at module level: the worker answers `unsupported` and
usage errors without it.
"""
