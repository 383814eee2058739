"""The normalisation of images that come as unsigned bytes."""

from __future__ import annotations

import numpy as np

from trc_runtime.cpu.bind import Array, BoundNode
from trc_runtime.cpu.half import compute_type, store
from trc_runtime.cpu.kernels.blocks import BLOCK_BYTES, cut
from trc_runtime.cpu.registry import Run, kernel

_SHORT = 256
"""Elements of an image's row below which NumPy's loops should run over the whole image."""


@kernel("normalise_input")
def normalise_input(node: BoundNode) -> Run:
    """Compute y = x * scale + shift for bytes x [n, h, w, c], product and sum each rounded to the type computed in.

    scale and shift have one number a channel of x; the channels that y has beyond them get zeros.
    """
    x, y = node["x"], node["y"]
    scale, shift = node.scalar("scale"), node.scalar("shift")
    n, h, w, c = x.shape
    if y.shape[:-1] != (n, h, w) or c > y.shape[-1] or scale.size != c or shift.size != c:
        raise node.problem(f"normalises {x.shape} with {scale.size} scales and {shift.size} shifts to {y.shape}")
    real, added = y[..., :c], y[..., c:]
    # One factor a pixel, not a channel: inner loops over one or three numbers would be slow.
    pixels = w if w * c >= _SHORT else h * w
    kind = compute_type(y.dtype)
    size = max(1, BLOCK_BYTES // (kind.itemsize * pixels * c))
    lines, target = x.reshape(-1, pixels, c, copy=False), real.reshape(-1, pixels, c, copy=False)
    size = min(size, len(lines))
    factors, terms = node.scratch((pixels, c), kind), node.scratch((pixels, c), kind)
    direct = y.dtype == kind and y.flags.c_contiguous and real.shape == y.shape
    spare = target[:0] if direct else node.scratch((size, pixels, c), kind)
    blocks: list[tuple[Array, Array, Array]] = []
    for source, out in cut([lines, target], size):
        values = out if direct else spare[: len(source)]
        blocks.append((source.reshape(len(source), -1), values.reshape(len(source), -1), out))
    row, end = factors.reshape(-1), terms.reshape(-1)

    def run() -> None:
        np.copyto(factors, scale)
        np.copyto(terms, shift)
        for source, values, out in blocks:
            np.multiply(source, row, out=values)
            np.add(values, end, out=values)
            if not direct:
                store(values.reshape(out.shape), out)
        if added.shape[-1]:
            added.fill(0)

    return run
