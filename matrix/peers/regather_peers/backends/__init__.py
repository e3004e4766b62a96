"""The backends of the real packages behind one interface; each wraps a model the way a trainer does."""


def make(case, root, given, device):
    if case.zero_stage:
        from regather_peers.backends.zero import Zero
        return Zero(case, root, given, device)
    if case.backend == "fsdp2":
        from regather_peers.backends.fsdp2 import Fsdp2
        return Fsdp2(case, root, given, device)
    from regather_peers.backends.replicated import Ddp, Single
    return Ddp(case, root, given, device) if case.backend == "ddp" else Single(case, root, given, device)


def shard_reference(case, root, device):
    """A reference model as the backend's trainer holds it: on ZeRO-3 partitioned by an engine of its own, elsewhere an
    unsharded copy on each rank. Returns what must be kept alive and closed, or None."""
    if case.zero_stage != 3:
        return None
    from regather_peers.backends.zero import ReferenceEngine
    return ReferenceEngine(case, root, device)
