"""Timing on a card whose power is limited, as alternate.cuh does it: what a program costs shows only in steady state,
and the steady state drifts. So blocks of about 0.2 s of the bare products and of the subject alternate, only the second
half of each block is timed, and medians are taken."""
import statistics

import torch


class Bare:
    """The products that no loss can do without, by cuBLAS: logits, gradients of hidden states and weight, in bf16."""

    def __init__(self, hidden, weight, targets):
        self.hidden, self.weight = hidden, weight
        self.logits_out = torch.mm(hidden, weight.t())
        self.by_logits = torch.empty_like(self.logits_out)
        for rows in torch.arange(len(hidden), device=hidden.device).split(1024):
            p = torch.softmax(self.logits_out[rows[0]:rows[-1] + 1].float(), -1)
            p[torch.arange(len(rows)), targets[rows]] -= 1
            self.by_logits[rows[0]:rows[-1] + 1] = p.to(hidden.dtype)
        self.hidden_out, self.weight_out = torch.empty_like(hidden), torch.empty_like(weight)

    def logits(self):
        torch.mm(self.hidden, self.weight.t(), out=self.logits_out)

    def three(self):
        self.logits()
        torch.mm(self.by_logits, self.weight, out=self.hidden_out)
        torch.mm(self.by_logits.t(), self.hidden, out=self.weight_out)

    def four(self):
        self.three()
        self.logits()


def block(work, seconds, expected_ms):
    """Milliseconds a call in the second half of a block, which has as many calls as `expected_ms` suggests."""
    half = max(1, round(seconds * 500 / expected_ms))
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(half):
        work()
    begin.record()
    for _ in range(half):
        work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / half


def alternate(base, subject, rounds, seconds=0.2):
    base_ms, subject_ms = [block(base, seconds, 1000 * seconds)], [block(subject, seconds, 1000 * seconds)]
    for _ in range(rounds):
        base_ms.append(block(base, seconds, base_ms[-1]))
        subject_ms.append(block(subject, seconds, subject_ms[-1]))
    percents = [100 * b / s for b, s in zip(base_ms[1:], subject_ms[1:])]
    return {"percent": statistics.median(percents), "spread": max(percents) - min(percents),
            "bare_ms": statistics.median(base_ms[1:]), "ms": statistics.median(subject_ms[1:])}
