"""What the installed packages cannot do, and why: asked before a case is started, never caught."""

from regather_peers.case import AXES

HOLDS_IN_RECOMPUTE = (0, 19, 3)  # the first deepspeed whose recompute leaves a frozen parameter gathered
FIXES_BY_HAND = ("gather", "kl_backbone", "redirect", "unshard_head")


def version_tuple(text):
    return tuple(int(part) for part in text.split("+")[0].split(".")[:3] if part.isdigit())


def needed_packages(case):
    packages = ["torch", "transformers", "safetensors"]
    if case.zero_stage:
        packages.append("deepspeed")
    if case.frozen == "lora":
        packages.append("peft")
    if case.kernel == "fused" and case.loss != "sft":
        packages.append("liger_kernel")
    if case.kernel == "chunked" or "redirect" in case.fixes:
        packages.append("trl")
    return packages


def unsupported(case, versions, device="cpu"):
    """The reason, or None. `versions`: name -> version of what is installed, None where it is not."""
    for axis, value in case.axes.items():
        if value not in AXES.get(axis, ()):
            return f"{axis}={value} is not in the Python stack"
    for package in needed_packages(case):
        if versions.get(package) is None:
            return f"package {package} is not installed in this environment"
    if case.backend == "fsdp1":
        return "backend fsdp1 is not in the Python stack yet"
    if case.backend == "single" and case.ranks != 1:
        return f"backend single is one unsharded rank: world=1, not {case.world}"
    if case.kernel == "chunked" and case.loss != "sft":
        return f"TRL's chunked loss computes sft alone, not {case.loss}"
    if case.kernel == "chunked" and version_tuple(versions["trl"]) >= (1, 15):
        return f"trl {versions['trl']} has no chunked loss of SFT's own: its last release is 1.14"
    if case.unit != "layers" and (case.backend != "fsdp2" or case.head == "tied"):
        return "unit: only FSDP2's untied head can be a unit of its own"
    if case.unit != "layers" and case.kernel == "chunked":
        return "unit: TRL's chunked loss reads the head by itself"
    if case.frozen == "quantised":
        return "a quantised frozen base is not in the Python stack yet"
    if case.dtype == "fp16":
        if case.zero_stage and device == "cpu":
            return "DeepSpeed's CPU accelerator refuses fp16"
        return "dtype fp16 with its loss scaler is not in the Python stack yet"
    reason = _missing_fix(case, versions)
    if reason:
        return reason
    transformers = version_tuple(versions["transformers"])
    if case.checkpoint != "none" and case.checkpoint_at == "forward" and transformers < (5, 23):
        return f"transformers {versions['transformers']} checkpoints a layer's call; its forward since 5.23"
    return None


def built_in(case, versions):
    """The fixes that a release is, which no case can leave out there."""
    if case.zero_stage == 3 and version_tuple(versions["deepspeed"]) >= HOLDS_IN_RECOMPUTE:
        return ("recompute_hold",)
    return ()


def _missing_fix(case, versions):
    for fix in case.fixes:
        if fix in FIXES_BY_HAND:
            continue
        if fix in ("recompute_hold", "recompute_owner"):
            if not case.zero_stage or version_tuple(versions["deepspeed"]) >= HOLDS_IN_RECOMPUTE:
                continue
            return f"{fix} is not in deepspeed {versions['deepspeed']}: it comes with 0.19.3 and later, as its own"
        if fix == "recompute_prompt":
            return "recompute_prompt is in no release of deepspeed"
        if fix == "sync":
            return "sync: no released trainer averages gradients by hand after a loss on the unwrapped model"
        return f"fix {fix} is not in the Python stack"
    return None
