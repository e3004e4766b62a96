"""Parameters whole on every rank: torch's DistributedDataParallel, and one unsharded rank."""

import contextlib

from torch.nn.parallel import DistributedDataParallel

from regather_peers.backends.base import Backend, adamw


class Single(Backend):
    def __init__(self, case, root, given, device):
        super().__init__(case, root, given, device)
        self.wrapper = self.root
        self.optimizer = adamw(self.trainable().values(), given.optimizer)


class Ddp(Single):
    def __init__(self, case, root, given, device):
        super().__init__(case, root, given, device)
        self.wrapper = DistributedDataParallel(self.root)

    def micro_step(self, last):
        # As accelerate accumulates: no reduction before a step's last micro-batch.
        return contextlib.nullcontext() if last else self.wrapper.no_sync()
