"""The default process group of a rank, and the order in which collectives end on gloo."""

import datetime

import torch.distributed as dist


def begin(device, rank, world, store, deadline):
    """`store`: the path of a file that the ranks share; `deadline` in seconds."""
    dist.distributed_c10d.ProcessGroupGloo = OrderedGloo
    dist.init_process_group("nccl" if device == "cuda" else "gloo", store=dist.FileStore(store, world), rank=rank,
                            world_size=world, timeout=datetime.timedelta(seconds=deadline))


class OrderedGloo(dist.ProcessGroupGloo):
    """One thread a group: collectives end in the order in which they began, as on NCCL's stream. On gloo's two, what is
    right on a GPU can be wrong at random (findings/). torch takes no options for gloo, and packages make groups of
    their own, so this stands in torch's place for the class."""

    def __init__(self, store, rank, size, timeout, **more):
        options = self._Options()
        options._devices, options._threads, options._timeout = [self.create_default_device()], 1, timeout
        for name, value in more.items():  # newer releases of torch say more here
            setattr(options, name, value)
        super().__init__(store, rank, size, options)
