"""DeepSpeed ZeRO stages 1 to 3, its engine and hooks as they are.

Settings that differ from DeepSpeed's defaults: the persistence threshold is the case's axis and prefetching is off, as
on the card; no gradient clipping, which 0.19.8 sets to 1 by default; buckets small enough for a small model. The optimizer is torch's AdamW, partitioned by DeepSpeed.
"""

import sys

import torch
import torch.distributed as dist

from regather_peers import model as models
from regather_peers.backends.base import Backend, adamw

PERSISTENCE = {"0": 0, "upstream": 100_000, "huge": 1 << 60}
BUCKET = 1_000_000  # elements


def prepare_package():
    """Before the first use. On a CPU DeepSpeed would compile an operator for shared memory, for minutes, and a run that
    is killed meanwhile leaves a lock on which every later one hangs; gloo serves as well."""
    from deepspeed.utils import logger
    # Not by import: as an attribute of its package the name is torch itself.
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
    logger.setLevel("WARNING")


def configuration(case, optimizes=True):
    config = {"train_micro_batch_size_per_gpu": 4,
              "gradient_accumulation_steps": case.micro_batches if optimizes else 1,
              "gradient_clipping": 0.0, "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
              "zero_optimization": {"stage": case.zero_stage, "reduce_bucket_size": BUCKET,
                                    "allgather_bucket_size": BUCKET}}
    if case.zero_stage == 3:
        config["zero_optimization"].update(stage3_param_persistence_threshold=PERSISTENCE[case.persistence],
                                           stage3_prefetch_bucket_size=0)
    if case.dtype == "bf16":
        config["bf16"] = {"enabled": True}
    return config


class Zero(Backend):
    def __init__(self, case, root, given, device):
        import deepspeed
        super().__init__(case, root, given, device)
        trainable = list(self.trainable().values())
        self.wrapper, self.optimizer, _, _ = deepspeed.initialize(
            model=self.root, model_parameters=trainable, optimizer=adamw(trainable, given.optimizer),
            config=configuration(case))

    def backward(self, loss, last):
        if self.case.accumulate == "manual2":
            self.wrapper.backward(loss / self.case.micro_batches, scale_wrt_gas=False)
        else:
            self.wrapper.backward(loss)
        if not last:
            self.wrapper.step()  # counts the micro-batch, no more

    def step(self):
        self.wrapper.step()

    def zero_gradients(self):
        self.wrapper.zero_grad()

    def is_whole(self, parameter):
        return is_whole(parameter)

    def gathered(self, parameters):
        import deepspeed
        return deepspeed.zero.GatheredParameters(parameters, modifier_rank=None)

    def full_gradients(self):
        from deepspeed.utils import safe_get_full_grad
        return {name: safe_get_full_grad(p) for name, p in self.trainable().items()}

    def full_parameters(self):
        return {name: whole(p) for name, p in models.named(self.root).items()}

    def broken_invariants(self):
        return [broken for name, p in models.named(self.root).items() for broken in broken_of(name, p)]

    def close(self):
        self.wrapper.destroy()

    def counts_no_micro_batch(self):
        # Stage 3 adds to a shard's gradient from micro_step_id 1 on; the engine's forward advances it.
        return self.case.zero_stage == 3 and self.optimizer.micro_step_id == 0


class ReferenceEngine:
    def __init__(self, case, root, device):
        import deepspeed
        self.root = root
        self.engine, *_ = deepspeed.initialize(model=root.to(device), config=configuration(case, optimizes=False))

    def broken_invariants(self):
        return [f"the reference's {broken}" for name, p in models.named(self.root).items()
                for broken in broken_of(name, p)]

    def close(self):
        self.engine.destroy()


def is_whole(parameter):
    if not hasattr(parameter, "ds_status"):
        return True
    from deepspeed.runtime.zero.partition_parameters import ZeroParamStatus
    return parameter.ds_status == ZeroParamStatus.AVAILABLE


def whole(parameter):
    """A copy of a parameter from its shards, which changes nothing of what DeepSpeed keeps of it."""
    if not hasattr(parameter, "ds_tensor"):
        return parameter.detach().clone()
    shard = parameter.ds_tensor.detach().contiguous()
    parts = [torch.empty_like(shard) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, shard)
    return torch.cat([part.flatten() for part in parts])[:parameter.ds_numel].view(parameter.ds_shape)


def broken_of(name, parameter):
    """After a step: nothing gathered (persistent parameters aside), no module using it, no whole gradient left."""
    if getattr(parameter, "ds_active_sub_modules", None):
        yield f"{name} is still in use by {len(parameter.ds_active_sub_modules)} module(s)"
    if hasattr(parameter, "ds_status") and is_whole(parameter) and not parameter.ds_persist:
        yield f"{name} is still gathered"
    if parameter.grad is not None:
        yield f"{name} still has its whole gradient"
