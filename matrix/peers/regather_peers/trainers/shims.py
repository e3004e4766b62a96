"""A way for accelerate and DeepSpeed to run on a CPU, where neither has one: nothing here touches a loss or a trainer.

accelerate goes its GPU way over gloo with the device replaced; with `use_cpu` it would give plain DDP, silently.
"""

import functools
import inspect
import os
import sys


def before_imports():
    # Liger and TRL compile their losses otherwise, for half a minute each.
    os.environ.update(TORCH_COMPILE_DISABLE="1", DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1",
                      HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="false",
                      HF_DATASETS_DISABLE_PROGRESS_BARS="1", TRL_EXPERIMENTAL_SILENCE="1")


def install(backend):
    """In a rank's process, before its trainer is made."""
    if backend == "ddp":
        return
    from accelerate.state import PartialState
    from accelerate.utils import DistributedType
    os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
    PartialState._prepare_backend = lambda *_, **__: ("gloo", DistributedType.MULTI_GPU)
    if backend.startswith("zero"):
        from regather_peers.backends.zero import prepare_package
        os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
        prepare_package()
        wait_at_once()
    else:
        os.environ["ACCELERATE_USE_FSDP"] = "true"


def wait_at_once():
    """DeepSpeed before 0.19.8 waits for the last of several all-gathers and takes the others for done: so they are on
    one NCCL stream, and not on gloo, whose threads finish them in any order. An asynchronous collective ends here
    before its call returns, as NCCL's order would have it; REGATHER_GLOO_ORDER=any leaves gloo as it is."""
    if os.environ.get("REGATHER_GLOO_ORDER") == "any":
        return
    backend = sys.modules["deepspeed.comm.torch"].TorchBackend
    for name, method in inspect.getmembers(backend, inspect.isfunction):
        if "async_op" in inspect.signature(method).parameters:
            setattr(backend, name, _waited(method))


def _waited(method):
    @functools.wraps(method)
    def waited(*args, **kwargs):
        work = method(*args, **kwargs)
        if hasattr(work, "wait"):
            work.wait()
        return work
    return waited
