"""References in float64: PyTorch for gradients, bounds for rounding."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

torch.backends.mkldnn.enabled = False  # it corrupts the heap in some float32 convolutions
torch.set_num_threads(2)

DTYPES = (np.float32, np.float64)
Array = np.ndarray


def random(seed: int, *shapes: tuple[int, ...], dtype=np.float32, scale: float = 1.0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [(scale * rng.standard_normal(s)).astype(dtype) for s in shapes]


def eps(dtype) -> float:
    return float(np.finfo(dtype).eps)


def torch64(function: Callable[..., torch.Tensor], *arrays: Array, dy: Array) -> tuple[Array, list[Array]]:
    """The value of a function in float64 and the gradients of its inputs for the cotangent dy."""
    leaves = [torch.tensor(a.astype(np.float64), requires_grad=True) for a in arrays]
    y = function(*leaves)
    y.backward(torch.tensor(dy.astype(np.float64)))
    return y.detach().numpy(), [leaf.grad.numpy() for leaf in leaves]


def within(got: Array, want: Array, bound: Array | float) -> None:
    """Every element at most `bound` off."""
    assert got.shape == want.shape
    worst = np.abs(got.astype(np.float64) - want) - bound
    at = np.unravel_index(np.argmax(worst), worst.shape)
    assert worst[at] <= 0, f"at {at}: {got[at]!r} for {want[at]!r}, {worst[at]:.3g} beyond the bound"
