#!/usr/bin/env python3
"""Tests of the torch operators: op_test.py LIBREGATHER_OP.SO cuda|cpu"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bench"))
import torch  # noqa: E402

import losses  # noqa: E402

losses.SHAPES["small"] = (256, 3001)
losses.LENGTH = 64
losses.DEVICE = sys.argv[2]
op = torch.ops.regather


def call(data, loss, hidden, weight, **options):
    targets = data.targets.view(-1, losses.LENGTH)
    hidden = hidden.view(*targets.shape, -1)
    if loss == "sft":
        return op.linear_sft(hidden, weight, targets, **options)
    if loss == "grpo":
        return op.linear_grpo(hidden, weight, targets, data.advantages, data.old, data.reference, **options)
    if loss == "dpo":
        return op.linear_dpo(hidden, weight, targets, data.reference, **options)
    return op.linear_kto(hidden, weight, targets, data.reference, data.desirable, data.kl, **options)


def formula(data, loss):
    return {"sft": losses.sft, "grpo": lambda p: losses.grpo(p, data), "dpo": lambda p: losses.dpo(p, data.reference),
            "kto": lambda p: losses.kto(p, data.reference, data)}[loss]


def leaves(data):
    return data.hidden.clone().requires_grad_(), data.weight.clone().requires_grad_()


def each_loss_and_its_gradients(data):
    for loss in ("sft", "grpo", "dpo", "kto"):
        right = losses.exact(data.hidden, data.weight, data.targets, formula(data, loss))
        for factor in (1.0, 0.5):
            hidden, weight = leaves(data)
            value, policy = call(data, loss, hidden, weight)
            (value * factor).backward()
            assert abs(value.item() - right[0]) < 1e-4, (loss, value.item(), right[0])
            assert not policy.requires_grad and policy.shape == data.targets.view(-1, losses.LENGTH).shape
            for ours, exact in ((hidden.grad, right[1]), (weight.grad, right[2])):
                found = losses.error(ours, exact * factor)
                assert found < 0.008, (loss, factor, found)


def backward_twice_is_an_error(data):
    hidden, weight = leaves(data)
    value, _ = call(data, "sft", hidden, weight)
    value.backward(retain_graph=True)
    first = weight.grad.clone()
    try:
        value.backward()
    except RuntimeError as error:
        assert "second time" in str(error), error
    else:
        raise AssertionError("a second backward went through")
    assert torch.equal(weight.grad, first)


def compiled_is_the_same(data):
    def step(hidden, weight):
        return call(data, "grpo", hidden * 1.0, weight)[0] * 2
    results = []
    for function in (step, torch.compile(step, fullgraph=True)):
        hidden, weight = leaves(data)
        function(hidden, weight).backward()
        results.append((hidden.grad, weight.grad))
    for plain, compiled in zip(*results):
        assert losses.error(compiled.float(), plain.double()) < 0.008  # dW: other kernels may be on trial


def wrong_arguments_are_errors(data):
    hidden, weight = leaves(data)
    for arguments, words in (((hidden.double(), weight.double(), data.targets), "not bfloat16"),
                             ((hidden, weight.half(), data.targets), "weight is"),
                             ((hidden, weight[:, :8], data.targets), "not [..., H] and [V, H]"),
                             ((hidden, weight, data.targets[:5]), "do not fit"),
                             ((hidden, weight, data.targets.int()), "targets is"),
                             ((hidden, weight, torch.full_like(data.targets, 3001)), "3001")):
        try:
            op.linear_sft(*arguments)
        except RuntimeError as error:
            assert words in str(error), (words, error)
        else:
            raise AssertionError(words)


def deterministic_is_the_same_each_time(data):
    results = [op._linear_sft(data.hidden, data.weight, data.targets, deterministic=True) for _ in range(3)]
    assert all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other))


def main():
    torch.ops.load_library(sys.argv[1])
    data = losses.Data("small", 512)
    data.add_parameters()
    for test in (each_loss_and_its_gradients, backward_twice_is_an_error, wrong_arguments_are_errors,
                 deterministic_is_the_same_each_time, compiled_is_the_same):
        test(data)
        print("ok", test.__name__, flush=True)


if __name__ == "__main__":
    main()
