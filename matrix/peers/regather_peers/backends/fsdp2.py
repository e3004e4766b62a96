"""PyTorch FSDP2: fully_shard on every decoder layer, then on the root with embedding, final norm and head."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from regather_peers import model as models
from regather_peers.backends.base import Backend, adamw


class Fsdp2(Backend):
    def __init__(self, case, root, given, device):
        super().__init__(case, root, given, device)
        options = {"mesh": init_device_mesh(device.type, (case.ranks,))}
        if case.dtype != "fp32":
            options["mp_policy"] = MixedPrecisionPolicy(param_dtype=models.DTYPES[case.dtype],
                                                        reduce_dtype=torch.float32)
        for layer in models.layers(self.root):
            fully_shard(layer, **options)
        if case.unit != "layers":
            fully_shard(models.head(self.root), **options)
        self.wrapper = fully_shard(self.root, **options)
        self._units = {name: m for name, m in self.root.named_modules() if isinstance(m, FSDPModule)}
        self._ran = set()
        for name, unit in self._units.items():
            unit.register_forward_pre_hook(lambda *_, name=name: self._ran.add(name) if torch.is_grad_enabled() else None)
        self.optimizer = adamw(self.trainable().values(), given.optimizer)

    def micro_step(self, last):
        self.wrapper.set_requires_gradient_sync(last)
        return super().micro_step(last)

    def zero_gradients(self):
        super().zero_gradients()
        self._ran.clear()

    def bypassed_units(self):
        return [name for name, unit in self._units.items() if name and name not in self._ran
                and any(p.grad is not None for p in unit.parameters())]

    def full_gradients(self):
        return {name: None if p.grad is None else p.grad.full_tensor() for name, p in self.trainable().items()}

    def full_parameters(self):
        with torch.no_grad():
            return {name: p.full_tensor().clone() for name, p in models.named(self.root).items()}
