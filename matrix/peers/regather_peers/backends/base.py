"""What every backend has. Collectives: step, full_gradients, full_parameters, gathered."""

import contextlib

import torch

from regather_peers import model as models


def adamw(parameters, options):
    """The optimizer of the reference, so that updates can be compared."""
    return torch.optim.AdamW(parameters, lr=options["lr"], betas=(options["beta1"], options["beta2"]),
                             eps=options["eps"], weight_decay=options["weight_decay"])


class Backend:
    wrapper = None  # what a trainer calls
    optimizer = None

    def __init__(self, case, root, given, device):
        self.case = case
        self.root = root.to(device)  # the unwrapped model
        self.given = given

    def trainable(self):
        return {name: p for name, p in models.named(self.root).items() if p.requires_grad}

    def micro_step(self, last):
        """Surrounds forward and backward of a micro-batch; `last` of its step."""
        return contextlib.nullcontext()

    def backward(self, loss, last):
        (loss / self.case.micro_batches).backward()

    def step(self):
        self.optimizer.step()

    def zero_gradients(self):
        self.optimizer.zero_grad()

    def is_whole(self, parameter):
        return True

    def gathered(self, parameters):
        return contextlib.nullcontext()

    def full_gradients(self):
        """Trainable name -> the whole gradient, or None. Before the step."""
        return {name: p.grad for name, p in self.trainable().items()}

    def full_parameters(self):
        return {name: p.detach().clone() for name, p in models.named(self.root).items()}

    def broken_invariants(self):
        return []

    def bypassed_units(self):
        """Names of what the backend shards as one and whose parameters have gradients without a forward of it with
        grad since zero_gradients()."""
        return []

    def counts_no_micro_batch(self):
        """Whether a step's later backwards overwrite the gradients of its earlier ones."""
        return False

    def close(self):
        pass
