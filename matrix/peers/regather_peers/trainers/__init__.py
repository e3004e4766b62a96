"""The real TRL trainers on two CPU ranks: what call and which fixes of the matrix each of them amounts to, observed.

`python -m regather_peers.trainers --trainer dpo --fused liger --backend zero3` runs one; a case of the matrix says what
a loss does, a trainer says which case a user is in.
"""

TRAINERS = ("sft", "dpo", "kto", "grpo")
FUSED = ("none", "liger", "chunked")
BACKENDS = ("ddp", "zero1", "zero2", "zero3", "fsdp2")
STEPS = 2
RANKS = 2
TOLERANCE = 1e-5  # relative L2 error of a gradient, as the matrix has it for fp32


def refused(trainer, fused, trl):
    """Why a combination is not run on a CPU with that release of TRL, or None."""
    if fused == "chunked" and trainer != "sft":
        return f"loss_type=chunked_nll is of SFTTrainer alone, not {trainer}"
    if fused == "liger" and trainer == "sft" and tuple(map(int, trl.split(".")[:2])) < (1, 15):
        return "SFTTrainer's use_liger_kernel is Liger's Triton kernel before trl 1.15: it does not run on a CPU"
    return None
