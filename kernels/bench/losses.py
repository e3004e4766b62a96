"""The data of a shape, the losses in plain torch, and the right gradients in double precision."""
import torch
import torch.nn.functional as F

SHAPES = {"0.5B": (896, 151936), "7B": (3584, 152064), "8B": (4096, 128256)}
LENGTH = 1024  # of a sequence
DEVICE = "cuda"


def zipf_targets(rows, vocab):
    """Drawn by Zipf's law: uniform ones hide the rounding of a weight gradient that is added to often."""
    generator = torch.Generator().manual_seed(5)
    cumulative = torch.cumsum(1 / torch.arange(1, vocab + 1, dtype=torch.float64), 0)
    drawn = torch.searchsorted(cumulative, torch.rand(rows, dtype=torch.float64, generator=generator) * cumulative[-1])
    return torch.randperm(vocab, generator=generator)[drawn.clamp_max(vocab - 1)]


class Data:
    """Hidden states that lean towards their targets, so that probabilities lie between nearly 0 and nearly 1."""

    def __init__(self, shape, rows, dtype=torch.bfloat16):
        self.width, self.vocab = SHAPES[shape]
        generator = torch.Generator(DEVICE).manual_seed(1)
        normal = lambda *size: torch.randn(*size, device=DEVICE, generator=generator)
        self.targets = zipf_targets(rows, self.vocab).to(DEVICE)
        self.weight = (normal(self.vocab, self.width) * 0.02).to(dtype)
        lean = 6 + 8 * torch.rand(rows, 1, device=DEVICE, generator=generator)
        self.hidden = (normal(rows, self.width) + self.weight[self.targets].float() * lean /
                       (0.0004 * self.width)).to(dtype)
        self.normal = normal
        self.sequences = rows // LENGTH

    def add_reference_model(self):
        self.reference_hidden = (self.hidden.float() + 0.02 * self.normal(*self.hidden.shape)).to(self.hidden.dtype)
        self.reference_weight = (self.weight.float() + 0.0002 * self.normal(*self.weight.shape)).to(self.weight.dtype)

    def add_parameters(self):
        """What GRPO, DPO and KTO are given, per token [B, T] in float32. Tokens near the clip are moved away from it:
        there a rounding decides between two gradients."""
        policy = exact_log_probabilities(self.hidden, self.weight, self.targets)
        old = policy + 0.15 * self.normal(len(policy))
        ratio = (policy - old).exp()
        near = ((ratio - 0.8).abs() < 1e-3) | ((ratio - 1.2).abs() < 1e-3)
        self.old = torch.where(near, old + 0.01, old).float().view(self.sequences, LENGTH)
        self.reference = (policy + 0.3 * self.normal(len(policy))).float().view(self.sequences, LENGTH)
        self.advantages = self.normal(self.sequences)
        self.desirable = torch.arange(self.sequences, device=DEVICE) % 2 == 0
        self.kl = torch.tensor(0.5, device=DEVICE)
        self.mask = torch.ones(self.sequences, LENGTH, device=DEVICE)


def log_probabilities(hidden, weight, targets):
    logits = F.linear(hidden, weight)
    logits = logits.float() if logits.dtype == torch.bfloat16 else logits
    return logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1) - torch.logsumexp(logits, -1)


def sft(policy):
    return -policy.mean()


def grpo(policy, data):
    policy, kind = policy.view(data.sequences, LENGTH), policy.dtype
    ratio = torch.exp(policy - data.old.to(kind))
    gain = data.advantages.to(kind)[:, None]
    distance = data.reference.to(kind) - policy
    loss = 0.04 * (distance.exp() - distance - 1) - torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain)
    return loss.mean(-1).mean()


def dpo(policy, reference):
    ratio = (policy - reference.to(policy.dtype).view(policy.shape)).view(-1, LENGTH).sum(-1)
    chosen, rejected = ratio.chunk(2)
    return -F.logsigmoid(0.1 * (chosen - rejected)).mean()


def kto(policy, reference, data):
    ratio = (policy - reference.to(policy.dtype).view(policy.shape)).view(-1, LENGTH).sum(-1)
    sign = torch.where(data.desirable, 1, -1)
    return (1 - torch.sigmoid(0.1 * sign * (ratio - data.kl.to(policy.dtype)))).mean()


def exact_log_probabilities(hidden, weight, targets):
    weight = weight.double()
    return torch.cat([log_probabilities(h.double(), weight, t) for h, t in zip(hidden.split(1024), targets.split(1024))])


def exact(hidden, weight, targets, loss):
    """Loss and gradients of hidden states and weight, logits one chunk at a time."""
    policy = exact_log_probabilities(hidden, weight, targets).requires_grad_()
    value = loss(policy)
    slope, = torch.autograd.grad(value, policy)
    wide = weight.double()
    by_hidden, by_weight = torch.empty_like(hidden, dtype=torch.float64), torch.zeros_like(wide)
    for first in range(0, len(hidden), 1024):
        rows = slice(first, first + 1024)
        x = hidden[rows].double()
        by_logits = torch.softmax(x @ wide.t(), -1).mul_(-slope[rows, None])
        by_logits.scatter_add_(1, targets[rows, None], slope[rows, None])
        by_hidden[rows] = by_logits @ wide
        by_weight.addmm_(by_logits.t(), x)
    return value.item(), by_hidden, by_weight


def error(ours, right):
    """Frobenius, relative; a NaN stays one."""
    difference = norm = 0.0
    for a, b in zip(ours.reshape(right.shape).split(16384), right.split(16384)):
        difference += (a.double() - b).square().sum().item()
        norm += b.square().sum().item()
    return (difference / norm) ** 0.5
