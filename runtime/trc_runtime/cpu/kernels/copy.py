"""Copies, casts, clearing, and sums of two gradients."""

from __future__ import annotations

import numpy as np

from trc_runtime.cpu.bind import Array, BoundNode
from trc_runtime.cpu.half import is_half, load, store_copy
from trc_runtime.cpu.kernels.blocks import Blocks, block_rows, cut, run_blocks
from trc_runtime.cpu.registry import Run, kernel
from trc_runtime.schema.kinds import Access
from trc_runtime.schema.regions import Region

_LABELS = (Region.I_A_LABEL, Region.I_B_LABEL)


@kernel("h2d_copy")
def h2d_copy(node: BoundNode) -> Run:
    """Copy the labels and images that the host has staged into the input regions of buffer `buffer`.

    Images are rounded here where they are kept in half precision. Channels that are not real get zeros.
    """
    buffer = node.text("buffer")
    staging = node.staging(buffer)
    copies: list[tuple[Array, Array]] = []
    rounded: list[tuple[Array, Array, Array]] = []
    added: list[Array] = []
    for tensor, view in node.range_views(Access.WRITE):
        if tensor.region in _LABELS:
            copies.append((view, staging.labels.reshape(view.shape)))
            continue
        real, images = view[..., : staging.images.shape[-1]], staging.images
        if real.shape != view.shape:
            added.append(view[..., images.shape[-1] :])
        if not is_half(view.dtype):
            copies.append((real, images))
            continue
        size = block_rows(images)
        spare = node.scratch((size, *images.shape[1:]), images.dtype)
        rounded += [(a, b, spare[: len(b)]) for a, b in cut([real, images], size)]

    def run() -> None:
        for target, source in copies:
            np.copyto(target, source)
        for target, source, spare in rounded:
            store_copy(source, target, spare)
        for target in added:
            target.fill(0)

    return run


@kernel("copy")
def copy(node: BoundNode) -> Run:
    """Compute y = x, of one shape and type."""
    x, y = node["x"], node["y"]
    if x.shape != y.shape or x.dtype != y.dtype:
        raise node.problem(f"copies {x.shape} of {x.dtype} to {y.shape} of {y.dtype}")

    def run() -> None:
        np.copyto(y, x)

    return run


@kernel("clear")
def clear(node: BoundNode) -> Run:
    """Write zeros to a range of regions."""
    (target,) = node.ranges(Access.WRITE)

    def run() -> None:
        target.fill(0)

    return run


@kernel("cast_range")
def cast_range(node: BoundNode) -> Run:
    """Round a range of float32 into one of half storage, or widen the other way; element by element, gaps included."""
    (source,), (target,) = node.ranges(Access.READ), node.ranges(Access.WRITE)
    if source.size != target.size:
        raise node.problem(f"the ranges have {source.size} and {target.size} elements")
    if is_half(source.dtype):
        pairs = cut([target, source])

        def widen() -> None:
            for wide, half in pairs:
                load(half, wide)

        return widen
    spare = node.scratch((min(source.size, block_rows(source)),), source.dtype)
    blocks = [(wide, half, spare[: wide.size]) for wide, half in cut([source, target])]

    def narrow() -> None:
        for wide, half, values in blocks:
            store_copy(wide, half, values)

    return narrow


@kernel("add_fwd")
def add_fwd(node: BoundNode) -> Run:
    """Compute y = a + b. y may be a or b."""

    def apply(a: Array, b: Array, y: Array) -> None:
        np.add(a, b, out=y)

    return run_blocks(Blocks(node, ("a", "b"), ("y",)), apply)


@kernel("channel_padding_fwd")
def channel_padding_fwd(node: BoundNode) -> Run:
    """Compute y = x in its first channels, 0 in those that x lacks."""
    x, y = node["x"], node["y"]
    _same_pixels(node, x, y)
    first, rest = y[..., : x.shape[-1]], y[..., x.shape[-1] :]

    def run() -> None:
        np.copyto(first, x)
        rest.fill(0)

    return run


@kernel("channel_padding_bwd")
def channel_padding_bwd(node: BoundNode) -> Run:
    """Compute dx = dy without the channels that were added."""
    dy, dx = node["dy"], node["dx"]
    _same_pixels(node, dx, dy)
    first = dy[..., : dx.shape[-1]]

    def run() -> None:
        np.copyto(dx, first)

    return run


def _same_pixels(node: BoundNode, narrow: Array, wide: Array) -> None:
    if narrow.shape[:-1] != wide.shape[:-1] or narrow.shape[-1] > wide.shape[-1]:
        raise node.problem(f"pads {narrow.shape} to {wide.shape}")
    if narrow.dtype != wide.dtype:
        raise node.problem(f"pads {narrow.dtype} to {wide.dtype}")
