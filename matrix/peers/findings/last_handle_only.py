"""DeepSpeed before 0.19.8: GatheredParameters on several parameters waits for the last all-gather alone (README.md).

    ENV/bin/python -W ignore matrix/peers/findings/last_handle_only.py [EXECUTIONS [VOCABULARY [GLOO_THREADS]]]

Two ranks on gloo; a policy whose head is its embedding, and a reference, each in a ZeRO-3 engine of its own; one
context gathers both weights for Liger's DPO loss. Prints in how many executions loss or gradient are wrong on a rank.
"""

import contextlib
import inspect
import os
import sys
import tempfile
import textwrap
from unittest import mock

os.environ |= {"DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "WORLD_SIZE": "2",
               "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

LAST, EVERY = "launch_handles[-1].wait()", "[handle.wait() for handle in launch_handles]"
CONFIG = {"train_micro_batch_size_per_gpu": 4, "zero_allow_untested_optimizer": True,
          "zero_force_ds_cpu_optimizer": False,
          "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0,  # and released after each forward:
                                "stage3_max_live_parameters": 0, "stage3_max_reuse_distance": 0}}


class Gloo(dist.ProcessGroupGloo):
    def __init__(self, store, rank, size, timeout):
        options = self._Options()
        options._devices, options._threads, options._timeout = [self.create_default_device()], self.threads, timeout
        super().__init__(store, rank, size, options)


class Late:
    """As late as an asynchronous collective may be: its result is there once it has been waited for."""

    def __init__(self, launch, output, piece, group):
        self.output, self.scratch = output, torch.empty_like(output)
        self.work = launch(self.scratch, piece, group=group, async_op=True)

    def wait(self):
        self.work.wait()
        self.output.copy_(self.scratch)


def run(policy, reference, ids, gathered, backward):
    from liger_kernel.chunked_loss import LigerFusedLinearDPOLoss
    hidden, theirs = torch.tanh(policy(ids)), torch.tanh(reference(ids)).detach()
    with gathered([policy.weight, reference.weight]):
        loss = LigerFusedLinearDPOLoss(compiled=False)(policy.weight, hidden, ids, None, theirs, reference.weight)[0]
    backward(loss)
    return loss.item()


def main(rank, store, executions=20, vocabulary=1000, threads=2):
    dist.distributed_c10d.ProcessGroupGloo, Gloo.threads = Gloo, threads  # DeepSpeed's group as well
    os.environ["RANK"] = str(rank)
    dist.init_process_group("gloo", store=dist.FileStore(store, 2), rank=rank, world_size=2)
    import deepspeed
    from deepspeed.runtime.zero import GatheredParameters, partition_parameters
    from deepspeed.utils import safe_get_full_grad
    sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # it would be compiled, for minutes
    whole, models = ([torch.nn.Embedding(vocabulary, 64) for _ in range(2)] for _ in range(2))
    engine, *_ = deepspeed.initialize(model=models[0], config=CONFIG,
                                      optimizer=torch.optim.SGD(models[0].parameters(), lr=0))
    deepspeed.initialize(model=models[1], config=CONFIG)

    def is_wrong(gathered):
        for right, model in zip(whole, models):  # new weights: what the last execution left in memory is wrong
            torch.nn.init.normal_(right.weight)
            with GatheredParameters(model.weight, modifier_rank=0):
                model.weight.data.copy_(right.weight.data)
        ids = torch.randint(vocabulary, (4, 16))
        want = run(*whole, ids, lambda _: contextlib.nullcontext(), torch.Tensor.backward)
        got = run(*models, ids, gathered, engine.backward)
        right, gradient = whole[0].weight.grad, safe_get_full_grad(models[0].weight)
        wrong = not (abs(got - want) <= 1e-4 * want and (gradient - right).norm() <= 1e-4 * right.norm())
        engine.step()
        whole[0].zero_grad()
        return wrong

    def count(what, gathered=GatheredParameters):
        wrong = torch.tensor([is_wrong(gathered) for _ in range(executions)], dtype=torch.int)
        dist.all_reduce(wrong)
        if rank == 0:
            print(f"{what:52}{wrong.count_nonzero():4} of {executions} wrong", flush=True)

    def one_by_one(parameters):
        stack = contextlib.ExitStack()
        for parameter in parameters:
            stack.enter_context(GatheredParameters(parameter))
        return stack

    name, namespace = "_allgather_params_coalesced", {}
    source = textwrap.dedent(inspect.getsource(getattr(partition_parameters.Init, name)))
    exec(source.replace(LAST, EVERY), vars(partition_parameters), namespace)
    launch = partition_parameters.dist.all_gather_into_tensor
    count(f"deepspeed {deepspeed.__version__}")

    def late(*to, group=None, async_op=False):
        return Late(launch, *to, group) if async_op else launch(*to, group=group)

    with mock.patch.object(partition_parameters.dist, "all_gather_into_tensor", late):
        count("each all-gather as late as its wait")
        count("as late, a GatheredParameters for each parameter", one_by_one)
        with mock.patch.object(partition_parameters.Init, name, namespace[name]):
            count("as late, every handle waited for")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        torch.manual_seed(1)  # the same weights and batches on both ranks
        main(int(child == 0), os.path.join(folder, "store"), *map(int, sys.argv[1:]))
        dist.barrier()
        if child:
            os.waitpid(child, 0)
        else:
            os._exit(0)
