"""Dropout.

An element is kept where its random number is >= p; kept elements are scaled by 1 / (1 - p). The number is that of
the counter (stream, iteration, sample, element / 4), so that the mask of a sample depends neither on the batch it
stands in nor on the target.
"""

from __future__ import annotations

from math import prod

import numpy as np

from trc_runtime.cpu.bind import Array, BoundNode
from trc_runtime.cpu.half import compute_type, is_half, load, store
from trc_runtime.cpu.kernels.blocks import BLOCK_BYTES, Blocks, run_blocks
from trc_runtime.cpu.registry import Run, kernel
from trc_runtime.rng import Philox, Stream


def _scale(node: BoundNode) -> tuple[float, float]:
    p = node.number("p")
    if not 0 <= p <= 1:
        raise node.problem(f"p must be between 0 and 1, not {p}")
    return p, 1.0 / (1.0 - p) if p < 1 else 0.0


@kernel("dropout_fwd")
def dropout_fwd(node: BoundNode) -> Run:
    """Compute mask = (random number >= p) and y = x mask / (1 - p). y may be x; the mask need not be kept."""
    p, scale = _scale(node)
    x, y, kept = node["x"], node["y"], node.get("mask")
    seed, iteration = node.scalar("seed").view(np.uint32), node.scalar("iteration")
    stream = int(node.number("stream"))
    generator = Philox()
    elements = prod(x.shape[1:])
    kind = compute_type(x.dtype)
    rows = max(1, min(x.shape[0], BLOCK_BYTES // (kind.itemsize * max(1, elements))))
    # the mask's channels are padded, so a sample of it is not always one run of memory
    drawn = node.scratch((rows, elements), np.int8)
    values = node.scratch((rows, *x.shape[1:]), kind) if is_half(x.dtype) else None
    blocks = [
        (n, x[n : n + rows], y[n : n + rows], None if kept is None else kept[n : n + rows])
        for n in range(0, x.shape[0], rows)
    ]

    def run() -> None:
        key = Stream(int(seed[1]) << 32 | int(seed[0]), stream, int(iteration[0]))
        for first_row, a, b, m in blocks:
            draws = drawn[: a.shape[0]]
            generator.at_least(key, p, draws, first_row)
            mask = draws.reshape(a.shape)
            if m is not None:
                np.copyto(m, mask)
            if values is None:
                _apply(a, mask, scale, b)
            else:
                half = values[: a.shape[0]]
                load(a, half)
                _apply(half, mask, scale, half)
                store(half, b)

    return run


@kernel("dropout_bwd")
def dropout_bwd(node: BoundNode) -> Run:
    """Compute dx = dy mask / (1 - p). dx may be dy."""
    _, scale = _scale(node)

    def apply(dy: Array, mask: Array, dx: Array) -> None:
        _apply(dy, mask, scale, dx)

    return run_blocks(Blocks(node, ("dy", "mask"), ("dx",)), apply)


def _apply(x: Array, mask: Array, scale: float, y: Array) -> None:
    np.multiply(x, mask, out=y)
    np.multiply(y, scale, out=y)
