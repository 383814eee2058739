"""Pools: maxima and means over windows, means over whole maps.

x is (n, h, w, c), y (n, p, q, c); window (i, j) begins at pixel (i, j) stride - padding. A window's cells are those
inside the map. Work goes tap by tap over strips that stay in a core's cache: whole rows of channels at a time. Backward
gathers: each strip of dx meets all taps while it is in float32, and is rounded once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trc_runtime.cpu.bind import Array, BoundNode
from trc_runtime.cpu.half import compute_type, is_half, load, store
from trc_runtime.cpu.registry import Run, kernel
from trc_runtime.cpu.rows import compiled
from trc_runtime.cpu.rows.choice import uses_compiled

STRIP_BYTES = 1 << 17
"""About how many bytes of the larger side a strip has."""

FEW = 16
"""Channels below which compiled loops over them gain nothing: NumPy takes other dimensions together."""

LARGEST_KERNEL = 11
"""The largest window whose cells a signed byte numbers."""


@dataclass(frozen=True)
class _Window:
    """A pool's sizes."""

    kernel: int
    stride: int
    padding: int
    n: int
    h: int
    w: int
    p: int
    q: int
    c: int

    def taps(self) -> Iterator[tuple[int, int, int]]:
        """(number, row, column) of each cell of a window."""
        for number in range(self.kernel * self.kernel):
            yield number, number // self.kernel, number % self.kernel

    def met(self, tap: int, outputs: range, pixels: range) -> tuple[slice, slice]:
        """The outputs of a range whose tap lies in a range of pixels, and those pixels.

        Both are counted from the beginnings of the ranges.
        """
        reach = tap - self.padding
        first = max(outputs.start, -((reach - pixels.start) // self.stride))
        last = min(outputs.stop, (pixels.stop - 1 - reach) // self.stride + 1)
        count = max(0, last - first)
        start = first * self.stride + reach - pixels.start
        return (
            slice(first - outputs.start, first - outputs.start + count),
            slice(start, start + (count - 1) * self.stride + 1, self.stride) if count else slice(0, 0),
        )


def _window(node: BoundNode, x: tuple[int, ...], y: tuple[int, ...]) -> _Window:
    kernel, stride, padding = (int(node.number(name)) for name in ("kernel", "stride", "padding"))
    if kernel < 1 or stride < 1 or padding < 0:
        raise node.problem(f"kernel {kernel}, stride {stride} and padding {padding} make no pool")
    n, h, w, c = x
    p, q = ((size + 2 * padding - kernel) // stride + 1 for size in (h, w))
    if p < 1 or q < 1 or y != (n, p, q, c):
        raise node.problem(f"input {x}, kernel {kernel}, stride {stride}, padding {padding} do not give {y}")
    return _Window(kernel, stride, padding, n, h, w, p, q, c)


def _compiled(g: _Window, array: Array) -> compiled.Pool | None:
    """The compiled form, where convolutions are compiled too."""
    if g.c < FEW or not uses_compiled(array):
        return None
    return compiled.Pool((g.h, g.w, g.p, g.q, g.c, g.kernel, g.stride, g.padding), g.n)


@dataclass(frozen=True)
class _Strip:
    """Some images, some rows of outputs and the rows of pixels that belong to them."""

    images: slice
    outputs: range
    pixels: range

    @property
    def count(self) -> int:
        """How many images."""
        return self.images.stop - self.images.start


def _strips(g: _Window, itemsize: int, backward: bool) -> list[_Strip]:
    """Forward: strips of outputs with all pixels they read. Backward: strips of pixels with all outputs they feed."""
    row = itemsize * g.c * max(g.w, g.q)
    images = min(g.n, max(1, STRIP_BYTES // (row * max(g.h, g.p))))
    high = max(1, STRIP_BYTES // (row * (1 if backward else g.stride)))
    total = g.h if backward else g.p
    if images > 1 or high >= total:
        high = total
    strips: list[_Strip] = []
    for n in range(0, g.n, images):
        for start in range(0, total, high):
            rows = range(start, min(start + high, total))
            if backward:
                first = max(0, -((g.kernel - 1 - g.padding - rows.start) // g.stride))
                last = min(g.p, (rows.stop - 1 + g.padding) // g.stride + 1)
                outputs, pixels = range(first, max(first, last)), rows
            else:
                first = min(g.h, max(0, rows.start * g.stride - g.padding))
                last = min(g.h, (rows.stop - 1) * g.stride - g.padding + g.kernel)
                outputs, pixels = rows, range(first, max(first, last))
            strips.append(_Strip(slice(n, min(n + images, g.n)), outputs, pixels))
    return strips


class _Side:
    """The strips of one array in the compute type: its own memory, or scratch for half storage."""

    def __init__(self, node: BoundNode, array: Array, strips: list[_Strip], pixels: bool, own: bool = False) -> None:
        """`own`: in scratch, whatever the storage."""
        rows = [s.pixels if pixels else s.outputs for s in strips]
        self.stored = [array[s.images, r.start : r.stop] for s, r in zip(strips, rows, strict=True)]
        self.half = is_half(array.dtype)
        if self.half or own:
            most = max(s.size for s in self.stored)
            scratch = node.scratch((most,), compute_type(array.dtype))
            self.values = [scratch[: s.size].reshape(s.shape) for s in self.stored]
        else:
            self.values = self.stored

    def load(self, number: int) -> None:
        """Convert a strip."""
        if self.half:
            load(self.stored[number], self.values[number])

    def store(self, number: int) -> None:
        """Round a strip."""
        if self.half:
            store(self.values[number], self.stored[number])


@dataclass(frozen=True)
class _Tap:
    """One tap in one strip: its number and where it meets outputs and pixels (slices of the strip)."""

    number: int
    outputs: tuple[slice, ...]
    pixels: tuple[slice, ...]


def _taps(g: _Window, strip: _Strip) -> list[_Tap]:
    found: list[_Tap] = []
    everything = slice(None)
    for number, i, j in g.taps():
        outputs, pixels = g.met(i, strip.outputs, strip.pixels)
        columns, across = g.met(j, range(g.q), range(g.w))
        if outputs.start < outputs.stop and columns.start < columns.stop:
            found.append(_Tap(number, (everything, outputs, columns), (everything, pixels, across)))
    return found


# ---------------------------------------------------------------- maxima


@kernel("max_pool_fwd")
def max_pool_fwd(node: BoundNode) -> Run:
    """Compute y = the largest cell of each window; mask (optional) = row * kernel + column of the first such cell.

    A NaN is larger than anything, and of several the last counts, as in PyTorch. A window without cells gives minus
    infinity and the mask -1.
    """
    x, y, mask = node["x"], node["y"], node.get("mask")
    g = _window(node, x.shape, y.shape)
    if g.kernel > LARGEST_KERNEL and mask is not None:
        raise node.problem(f"a mask of signed bytes numbers windows up to {LARGEST_KERNEL}, not {g.kernel}")
    if (form := _compiled(g, x)) is not None:
        return form.forward(x, y, mask, mean=False)
    strips = _strips(g, compute_type(x.dtype).itemsize, backward=False)
    source, target = _Side(node, x, strips, pixels=True), _Side(node, y, strips, pixels=False)
    taps = [_taps(g, s) for s in strips]
    if mask is None:

        def run() -> None:
            for number, tap_list in enumerate(taps):
                source.load(number)
                values, best = source.values[number], target.values[number]
                best.fill(-np.inf)
                for tap in tap_list:
                    part = best[tap.outputs]
                    np.maximum(part, values[tap.pixels], out=part)
                target.store(number)

        return run

    marks = _Side(node, mask, strips, pixels=False, own=True)
    most = max(v.size for v in target.values)
    memory = node.scratch((most,), np.int8)
    places = [memory[: v.size].reshape(v.shape) for v in target.values]
    flag_memory = node.scratch((most,), np.bool_)
    first = _first_taps(g, strips, taps)

    def follow(number: int, nan: bool) -> None:
        values, best, place = source.values[number], target.values[number], places[number]
        best.fill(-np.inf)
        np.copyto(place, first[number])
        for tap in taps[number]:
            part, at, cells = best[tap.outputs], place[tap.outputs], values[tap.pixels]
            flags = flag_memory[: part.size].reshape(part.shape)
            np.greater(cells, part, out=flags)
            if nan:
                np.logical_or(flags, np.isnan(cells), out=flags)
            np.maximum(part, cells, out=part)
            # taps come in ascending order, so the last that was larger has the largest number; 0 stands for none
            number_of = flags.view(np.int8)
            np.multiply(number_of, tap.number + 1, out=number_of)
            np.maximum(at, number_of, out=at)

    def run_marked() -> None:
        for number in range(len(strips)):
            source.load(number)
            follow(number, nan=False)
            if np.isnan(np.maximum.reduce(target.values[number], axis=None)):
                follow(number, nan=True)
            np.subtract(places[number], 1, out=places[number])
            np.copyto(marks.stored[number], places[number])
            target.store(number)

    return run_marked


def _first_taps(g: _Window, strips: list[_Strip], taps: list[list[_Tap]]) -> list[Array]:
    """The number, plus 1, of each window's first cell, as (1, rows, q, 1): what counts where nothing is larger."""
    found: list[Array] = []
    for strip, tap_list in zip(strips, taps, strict=True):
        first = np.zeros((1, len(strip.outputs), g.q, 1), np.int8)
        for tap in reversed(tap_list):
            first[tap.outputs] = tap.number + 1
        found.append(first)
    return found


@kernel("max_pool_bwd")
def max_pool_bwd(node: BoundNode) -> Run:
    """Compute dx = the sum of dy over the windows whose maximum a pixel was."""
    dy, mask, dx = node["dy"], node["mask"], node["dx"]
    g = _window(node, dx.shape, dy.shape)
    if (form := _compiled(g, dy)) is not None:
        return form.backward(dy, mask, dx, mean=False)
    kind = compute_type(dy.dtype)
    strips = _strips(g, kind.itemsize, backward=True)
    source, target = _Side(node, dy, strips, pixels=False), _Side(node, dx, strips, pixels=True)
    marks = _Side(node, mask, strips, pixels=False)
    taps = [_taps(g, s) for s in strips]
    most = max(1, *(v.size for v in source.values))
    integer = np.dtype(f"i{kind.itemsize}")
    flag_memory, chosen_memory = node.scratch((most,), np.bool_), node.scratch((most,), integer)

    def run() -> None:
        for number, tap_list in enumerate(taps):
            source.load(number)
            gradient, place, result = source.values[number], marks.stored[number], target.values[number]
            result.fill(0)
            for tap in tap_list:
                given, pixels = gradient[tap.outputs], result[tap.pixels]
                flags = flag_memory[: given.size].reshape(given.shape)
                chosen = chosen_memory[: given.size].reshape(given.shape)
                np.equal(place[tap.outputs], tap.number, out=flags)
                # chosen bit by bit: a product of floating-point numbers would let NaN through
                np.copyto(chosen, flags)
                np.multiply(chosen, given.view(integer), out=chosen)
                np.add(pixels, chosen.view(kind), out=pixels)
            target.store(number)

    return run


# ---------------------------------------------------------------- means


def _counts(g: _Window, kind: np.dtype[np.generic]) -> Array:
    """Cells of each window, as (p, q, 1); 1 for a window without any."""
    rows, columns = (
        np.array([sum(0 <= i * g.stride - g.padding + t < size for t in range(g.kernel)) for i in range(outputs)])
        for outputs, size in ((g.p, g.h), (g.q, g.w))
    )
    return np.maximum(np.outer(rows, columns), 1).astype(kind)[:, :, None]


@kernel("avg_pool_fwd")
def avg_pool_fwd(node: BoundNode) -> Run:
    """Compute y = the mean over the cells of each window; 0 for a window without cells."""
    x, y = node["x"], node["y"]
    g = _window(node, x.shape, y.shape)
    if (form := _compiled(g, x)) is not None:
        return form.forward(x, y, None, mean=True)
    kind = compute_type(x.dtype)
    strips = _strips(g, kind.itemsize, backward=False)
    source, target = _Side(node, x, strips, pixels=True), _Side(node, y, strips, pixels=False)
    taps = [_taps(g, s) for s in strips]
    counts = _counts(g, kind)
    divisors = [counts[s.outputs.start : s.outputs.stop] for s in strips]

    def run() -> None:
        for number, tap_list in enumerate(taps):
            source.load(number)
            values, total = source.values[number], target.values[number]
            total.fill(0)
            for tap in tap_list:
                part = total[tap.outputs]
                np.add(part, values[tap.pixels], out=part)
            np.divide(total, divisors[number], out=total)
            target.store(number)

    return run


@kernel("avg_pool_bwd")
def avg_pool_bwd(node: BoundNode) -> Run:
    """Compute dx = the sum over the windows that hold a pixel of dy / cells."""
    dy, dx = node["dy"], node["dx"]
    g = _window(node, dx.shape, dy.shape)
    if (form := _compiled(g, dy)) is not None:
        return form.backward(dy, None, dx, mean=True)
    kind = compute_type(dy.dtype)
    strips = _strips(g, kind.itemsize, backward=True)
    source, target = _Side(node, dy, strips, pixels=False), _Side(node, dx, strips, pixels=True)
    taps = [_taps(g, s) for s in strips]
    counts = _counts(g, kind)
    divisors = [counts[s.outputs.start : s.outputs.stop] for s in strips]
    memory = node.scratch((max(1, *(v.size for v in source.values)),), kind)

    def run() -> None:
        for number, tap_list in enumerate(taps):
            source.load(number)
            gradient, result = source.values[number], target.values[number]
            share = memory[: gradient.size].reshape(gradient.shape)
            np.divide(gradient, divisors[number], out=share)
            result.fill(0)
            for tap in tap_list:
                pixels = result[tap.pixels]
                np.add(pixels, share[tap.outputs], out=pixels)
            target.store(number)

    return run


@kernel("gap_fwd")
def gap_fwd(node: BoundNode) -> Run:
    """Compute y = the mean of each channel over a sample's pixels, summed in float64 and rounded once."""
    x, y = node["x"], node["y"]
    n, h, w, c = x.shape
    if y.shape != (n, 1, 1, c):
        raise node.problem(f"takes {x.shape} to {y.shape}")
    kind = compute_type(x.dtype)
    size = max(1, min(n, STRIP_BYTES // max(1, kind.itemsize * h * w * c)))
    values = node.scratch((size, h, w, c), kind) if is_half(x.dtype) else None
    total, mean = node.scratch((size, c), np.float64), node.scratch((size, c), kind)

    def run() -> None:
        for start in range(0, n, size):
            cells = x[start : start + size]
            count = cells.shape[0]
            if values is not None:
                load(cells, values[:count])
                cells = values[:count]
            np.add.reduce(cells.reshape(count, h * w, c), axis=1, dtype=np.float64, out=total[:count])
            np.divide(total[:count], h * w, out=mean[:count], casting="same_kind")
            store(mean[:count], y[start : start + size, 0, 0])

    return run


@kernel("gap_bwd")
def gap_bwd(node: BoundNode) -> Run:
    """Compute dx = dy / pixels, the same for all pixels of a sample's channel."""
    dy, dx = node["dy"], node["dx"]
    n, h, w, c = dx.shape
    if dy.shape != (n, 1, 1, c):
        raise node.problem(f"takes {dy.shape} to {dx.shape}")
    share, rounded = node.scratch((n, 1, 1, c), compute_type(dy.dtype)), node.scratch((n, 1, 1, c), dy.dtype)

    def run() -> None:
        load(dy, share)
        np.divide(share, h * w, out=share)
        store(share, rounded)
        np.copyto(dx, rounded)

    return run
