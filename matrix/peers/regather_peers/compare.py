"""How far a tensor is from what it should be, as src/train/compare.cpp has it."""

import hashlib
import math

import torch


def difference(got, want):
    """Relative L2 error, cosine, the largest difference and where; float64, shapes equal."""
    if got.shape != want.shape:
        raise ValueError(f"got a gradient of shape {list(got.shape)}, expected {list(want.shape)}")
    a, b = got.detach().double().cpu().flatten(), want.double().flatten()
    finite = torch.isfinite(a)
    nonfinite = int((~finite).sum())
    a, whole = torch.where(finite, a, torch.zeros_like(a)), b
    b = torch.where(finite, b, torch.zeros_like(b))
    apart = (a - b).abs()
    norm, mine = b.norm().item(), a.norm().item()
    worst = int(apart.argmax()) if apart.numel() else 0
    product = norm * mine
    return {"relative_l2": (a - b).norm().item() / norm if norm > 0 else mine,
            "cosine": (a @ b).item() / product if product > 0 else float(norm == mine),
            "max_abs": apart[worst].item() if apart.numel() else 0.0,
            "at": [int(i) for i in torch.unravel_index(torch.tensor(worst), want.shape)] if want.dim() else [],
            "got": a[worst].item() if apart.numel() else 0.0,
            "want": whole[worst].item() if apart.numel() else 0.0, "nonfinite": nonfinite}


def update_share(before, after, want, tolerance, rounding):
    """How much of its allowance an update uses: `tolerance` of its norm, and three roundings of the parameter's."""
    start = before.double()
    error = (after.double() - start - want).norm().item()
    allowed = tolerance * want.norm().item() + 3 * rounding * start.norm().item()
    return error / allowed if allowed > 0 else (math.inf if error > 0 else 0.0)


def digest(tensors):
    """The same for equal bytes and no other, in practice: a signed 64-bit integer."""
    state = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        state.update(b"none" if tensor is None else
                     tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return int.from_bytes(state.digest(), "little", signed=True)
