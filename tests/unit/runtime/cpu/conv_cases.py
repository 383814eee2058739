"""Convolutions of many shapes, and one node at a time without a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from trc_runtime.cpu.bind import BoundNode, Scratch
from trc_runtime.cpu.registry import lookup

CASES = [
    # n, h, w, c, k, r, s, stride, padding, groups
    (1, 1, 1, 1, 1, 1, 1, 1, 0, 1),
    (2, 1, 1, 3, 5, 3, 3, 1, 1, 1),  # a kernel larger than the map
    (3, 7, 5, 3, 8, 3, 3, 1, 1, 1),
    (5, 8, 9, 5, 7, 3, 3, 2, 1, 1),
    (2, 9, 7, 8, 3, 5, 5, 3, 2, 1),
    (1, 5, 6, 3, 4, 3, 1, 1, 0, 1),
    (4, 6, 6, 8, 5, 1, 1, 1, 0, 1),
    (3, 7, 6, 5, 7, 1, 1, 2, 0, 1),
    (2, 4, 4, 3, 4, 1, 1, 1, 1, 1),  # padding beyond a 1 x 1 kernel
    (2, 5, 5, 3, 4, 2, 2, 3, 0, 1),  # a stride beyond the kernel
    (2, 6, 5, 2, 3, 2, 4, 1, 3, 1),
    (1, 17, 18, 1, 6, 7, 7, 2, 3, 1),
    (2, 11, 10, 17, 35, 3, 3, 1, 1, 1),
    (2, 6, 6, 6, 9, 3, 3, 1, 1, 3),
    (3, 5, 7, 8, 4, 3, 3, 2, 1, 2),
    (2, 5, 5, 5, 5, 3, 3, 1, 1, 5),  # depthwise
    (3, 8, 7, 8, 8, 3, 3, 2, 1, 8),
    (2, 5, 4, 3, 6, 3, 3, 1, 1, 3),  # depthwise, two outputs a channel
    (1, 9, 9, 4, 4, 5, 5, 3, 2, 4),
    (2, 4, 4, 3, 3, 1, 1, 2, 0, 3),
    (3, 9, 6, 70, 70, 3, 3, 2, 1, 70),
    (5, 12, 12, 33, 65, 3, 3, 1, 1, 1),
    (3, 14, 14, 64, 48, 3, 3, 2, 1, 1),
    (4, 10, 10, 32, 96, 1, 1, 1, 0, 1),
]


class Alone(BoundNode):
    """A node whose operands are given arrays."""

    def __init__(self, arrays: Mapping[str, np.ndarray], params: Mapping[str, Any]) -> None:
        self.kind, self.layer, self.column = "conv", "layer1", 0
        self.params = dict(params)
        self.arrays = dict(arrays)
        self.master = np.dtype(np.float64 if arrays["x" if "x" in arrays else "dy"].dtype == np.float64 else np.float32)
        self._own = Scratch()
        self.pieces: list[np.ndarray] = []
        self._scratch_end = 0

    def __contains__(self, name: str) -> bool:
        return name in self.arrays

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name]

    def scratch(self, shape, dtype=None):
        piece, self._scratch_end = self._own.cut(self._scratch_end, shape, dtype or self.master)
        self.pieces.append(piece)
        piece.view(np.uint8)[...] = 0xA5  # what a kernel does not write is garbage
        return piece


def params_of(case) -> dict[str, int]:
    return dict(zip(("stride", "padding", "groups"), case[7:], strict=True))


def shapes_of(case) -> dict[str, tuple[int, ...]]:
    n, h, w, c, k, r, s, stride, padding, groups = case
    p, q = (h + 2 * padding - r) // stride + 1, (w + 2 * padding - s) // stride + 1
    return {"x": (n, h, w, c), "weight": (k, r, s, c // groups), "y": (n, p, q, k), "bias": (1, 1, 1, k)}


def run_alone(kind: str, inputs, outputs, twice: bool = True, **params) -> dict[str, np.ndarray]:
    """Run a kind; `outputs` maps names to (shape, dtype). It runs twice into the same arrays."""
    arrays = dict(inputs)
    for name, (shape, dtype) in outputs.items():
        raw = np.empty(int(np.prod(shape)) * np.dtype(dtype).itemsize, np.uint8)
        raw.fill(0xA5)
        arrays[name] = raw.view(dtype).reshape(shape)
    node = Alone(arrays, params)
    run = lookup(kind)(node)
    with np.errstate(all="ignore"):
        run()
        if twice:
            first = {n: arrays[n].copy() for n in outputs}
            for piece in node.pieces:
                piece.view(np.uint8)[...] = 0xFF  # scratch is not kept between runs
            run()
            for name, before in first.items():
                assert before.tobytes() == arrays[name].tobytes(), f"{name} changes when run again"
    return {n: arrays[n] for n in outputs}


def torch_conv(case, x, weight, dy, bias=None):
    """y, dx, dweight, dbias in float64; arrays in trc's layout."""
    stride, padding, groups = case[7:]
    leaves = [torch.tensor(np.asarray(a, np.float64), requires_grad=True) for a in (x, weight)]
    b = None if bias is None else torch.tensor(np.asarray(bias, np.float64).reshape(-1), requires_grad=True)
    y = torch.nn.functional.conv2d(
        leaves[0].permute(0, 3, 1, 2), leaves[1].permute(0, 3, 1, 2), b, stride, padding, 1, groups
    ).permute(0, 2, 3, 1)
    y.backward(torch.tensor(np.asarray(dy, np.float64)))
    db = None if b is None else b.grad.numpy()
    return y.detach().numpy(), leaves[0].grad.numpy(), leaves[1].grad.numpy(), db


def magnitudes(case, x, weight, dy, bias=None):
    """The same sums over absolute values: what rounding errors are proportional to."""
    return torch_conv(case, *(np.abs(np.asarray(a, np.float64)) for a in (x, weight, dy)),
                      None if bias is None else np.abs(bias))  # fmt: skip


def bf16(values: np.ndarray) -> np.ndarray:
    """Values as bfloat16 bits, by PyTorch."""
    return torch.tensor(np.asarray(values, np.float32)).bfloat16().view(torch.int16).numpy().view(np.uint16)


def widen(stored: np.ndarray) -> np.ndarray:
    """Stored values in float64."""
    if stored.dtype == np.uint16:
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return stored.astype(np.float64)
