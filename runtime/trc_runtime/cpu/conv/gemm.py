"""The NumPy engine: blocks of windows laid out as rows (im2col) and multiplied by BLAS.

A block is a few images, or some rows of one image, such that its windows stay in the caches. Windows of one pixel
(1 x 1 kernels) are multiplied where they lie.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.lib.stride_tricks import as_strided

from trc_runtime.cpu.bind import Array, BoundNode
from trc_runtime.cpu.conv.geometry import Geometry, Job, Sliding
from trc_runtime.cpu.conv.source import Filler, Prologue, is_plain
from trc_runtime.cpu.conv.sums import Statistics
from trc_runtime.cpu.conv.weights import Loaded, Matrix, of_job
from trc_runtime.cpu.half import compute_type, load, store
from trc_runtime.cpu.registry import Run

WINDOW_BYTES = 1 << 22
"""Bytes of a block's windows."""


@dataclass(frozen=True)
class Input:
    """The source of a pass: an array (n, h, w, channels), what it is normalised with, and how windows slide."""

    array: Array
    sliding: Sliding
    before: Prologue | None = None


@dataclass(frozen=True)
class _Block:
    """Images start to stop, and rows of every job's results within (all, unless it is a single image)."""

    start: int
    stop: int
    rows: tuple[slice, ...]


def _blocks(source: Input, groups: int) -> list[_Block]:
    images, channels = source.array.shape[0], source.array.shape[3] // groups
    jobs = source.sliding.jobs
    itemsize = compute_type(source.array.dtype).itemsize
    row = max(j.counts[1] * prod(j.window) * channels * itemsize for j in jobs)
    height = max(j.counts[0] for j in jobs)
    together = WINDOW_BYTES // max(1, row * height)
    if together >= 1:
        whole = (slice(None),) * len(jobs)
        return [_Block(n, min(n + together, images), whole) for n in range(0, images, together)]
    rows = max(1, WINDOW_BYTES // row)
    cuts = [tuple(slice(i, i + rows) for _ in jobs) for i in range(0, height, rows)]
    return [_Block(n, n + 1, cut) for n in range(images) for cut in cuts]


class _Windows:
    """The windows of a block, a job and a group as a matrix (positions, taps and channels)."""

    def __init__(self, frame: Array, job: Job, rows: slice, channels: slice, scratch: Array) -> None:
        group = frame[:, job.start[0] :, job.start[1] :, channels]
        image, line, pixel, channel = group.strides
        high = len(range(job.counts[0])[rows])
        shape = (group.shape[0], high, job.counts[1], *job.window, group.shape[3])
        strides = (image, line * job.step, pixel * job.step, line, pixel, channel)
        first = group[:, (rows.start or 0) * job.step :]
        self._view = as_strided(first, shape, strides, writeable=False)
        size = (prod(shape[:3]), prod(shape[3:]))
        self._copy: Array | None = None
        if job.window == (1, 1):
            try:
                self.matrix = self._view.reshape(size, copy=False)
                return
            except ValueError:
                pass  # not one matrix in memory: copied like all others
        self.matrix = scratch[: size[0] * size[1]].reshape(size)
        self._copy = self.matrix.reshape(shape)

    def gather(self) -> None:
        """Copy the windows into rows, where they do not lie so already."""
        if self._copy is not None:
            np.copyto(self._copy, self._view)


class _Frames:
    """Where a block's frame lies: the array itself, or a buffer that is filled block by block."""

    def __init__(self, node: BoundNode, source: Input, blocks: list[_Block]) -> None:
        self._array = source.array
        self._filler: Filler | None = None
        if not is_plain(source.array, source.sliding.frame, source.before):
            most = max((b.stop - b.start for b in blocks), default=1)
            self._filler = Filler(node, source.array, source.sliding.frame, most, source.before)

    def begin(self) -> None:
        if self._filler is not None:
            self._filler.begin()

    def view(self, block: _Block) -> Array:
        if self._filler is None:
            return self._array[block.start : block.stop]
        return self._filler.buffer[: block.stop - block.start]

    def fill(self, block: _Block) -> None:
        """Blocks of one image after another fill the frame once."""
        if self._filler is not None and (block.rows[0].start or 0) == 0:
            self._filler.fill(block.start, block.stop)


def _window_scratch(node: BoundNode, source: Input, blocks: list[_Block], groups: int) -> Array:
    channels = source.array.shape[3] // groups
    most = 0
    for block in blocks:
        for job, rows in zip(source.sliding.jobs, block.rows, strict=True):
            high = len(range(job.counts[0])[rows])
            most = max(most, (block.stop - block.start) * high * job.counts[1] * prod(job.window) * channels)
    return node.scratch((most,), compute_type(source.array.dtype))


def correlate(
    node: BoundNode,
    g: Geometry,
    source: Input,
    weight: Array,
    target: Array,
    backward: bool,
    bias: Array | None = None,
    statistics: Statistics | None = None,
) -> Run:
    """Every target pixel = the sum over its window of source times weights (+ bias), rounded once to storage.

    `backward` says that the source is dy. `statistics` sees the results as stored.
    """
    kind = compute_type(source.array.dtype)
    blocks = _blocks(source, g.groups)
    frames = _Frames(node, source, blocks)
    scratch = _window_scratch(node, source, blocks, g.groups)
    loaded = Loaded(node, weight)
    offset = None if bias is None else Loaded(node, bias)
    wide, narrow = source.array.shape[3] // g.groups, target.shape[3] // g.groups
    matrices = [
        [Matrix(node, of_job(loaded.values, g, job, group, backward)) for group in range(g.groups)]
        for job in source.sliding.jobs
    ]
    most = max((b.stop - b.start) * len(range(j.counts[0])[r]) * j.counts[1]
               for b in blocks for j, r in zip(source.sliding.jobs, b.rows, strict=True))  # fmt: skip
    results = node.scratch((most * narrow,), kind)
    work: list[tuple[_Block, list[Callable[[], None]]]] = []
    for block in blocks:
        steps: list[Callable[[], None]] = []
        frame = frames.view(block)
        for job, rows, by_group in zip(source.sliding.jobs, block.rows, matrices, strict=True):
            part = job.target(target)[block.start : block.stop, rows]
            if part.shape[1] == 0:
                continue
            for group, matrix in enumerate(by_group):
                channels = slice(group * narrow, (group + 1) * narrow)
                out = part[..., channels]
                if 0 in job.window:
                    steps.append(lambda out=out: out.fill(0))
                    continue
                windows = _Windows(frame, job, rows, slice(group * wide, (group + 1) * wide), scratch)
                steps.append(_product(windows, matrix.values, out, results, offset, channels, statistics))
        work.append((block, steps))

    def run() -> None:
        frames.begin()
        loaded.refresh()
        if offset is not None:
            offset.refresh()
        for by_group in matrices:
            for matrix in by_group:
                matrix.refresh()
        if statistics is not None:
            statistics.begin()
        for block, steps in work:
            frames.fill(block)
            for step in steps:
                step()
        if statistics is not None:
            statistics.finish()

    return run


def _product(
    windows: _Windows,
    matrix: Array,
    out: Array,
    results: Array,
    bias: Loaded | None,
    channels: slice,
    statistics: Statistics | None,
) -> Callable[[], None]:
    size = (windows.matrix.shape[0], matrix.shape[1])
    values = results[: size[0] * size[1]].reshape(size)
    direct = False
    if out.dtype == values.dtype:
        try:
            values, direct = out.reshape(size, copy=False), True
            direct = values.flags.c_contiguous
        except ValueError:
            direct = False
    if not direct:
        values = results[: size[0] * size[1]].reshape(size)
    shaped = values.reshape(out.shape)
    added = None if bias is None else bias.values[channels]

    def step() -> None:
        windows.gather()
        np.matmul(windows.matrix, matrix, out=values)
        if added is not None:
            np.add(values, added, out=values)
        if not direct:
            store(shaped, out)
        if statistics is not None:
            if out.dtype != values.dtype:
                load(out, shaped)
            statistics.sums.add(values, channels)

    return step


def weight_gradient(node: BoundNode, g: Geometry, source: Input, dy: Array, dweight: Array) -> Run:
    """Compute dweight[k, r, s, c] = the sum over all positions of dy times what tap (r, s) of the window sees."""
    kind = compute_type(source.array.dtype)
    blocks = _blocks(source, g.groups)
    frames = _Frames(node, source, blocks)
    scratch = _window_scratch(node, source, blocks, g.groups)
    wide, narrow = g.c // g.groups, g.k // g.groups
    taps = g.r * g.s * wide
    direct = dweight.dtype == kind and dweight.flags.c_contiguous
    total = dweight.reshape(g.k, taps) if direct else node.scratch((g.k, taps), kind)
    part = node.scratch((narrow, taps), kind)
    (job,) = source.sliding.jobs
    most = max((b.stop - b.start) * len(range(g.p)[b.rows[0]]) * g.q for b in blocks)
    gradients = node.scratch((most * narrow,), kind)
    work: list[tuple[_Block, list[Callable[[], None]]]] = []
    for number, block in enumerate(blocks):
        steps: list[Callable[[], None]] = []
        frame = frames.view(block)
        for group in range(g.groups):
            channels = slice(group * narrow, (group + 1) * narrow)
            windows = _Windows(frame, job, block.rows[0], slice(group * wide, (group + 1) * wide), scratch)
            given = dy[block.start : block.stop, block.rows[0], :, channels]
            steps.append(_outer(windows, given, gradients, total[channels], part, number == 0))
        work.append((block, steps))

    def run() -> None:
        frames.begin()
        for block, steps in work:
            frames.fill(block)
            for step in steps:
                step()
        if not direct:
            store(total.reshape(dweight.shape), dweight)

    return run


def _outer(
    windows: _Windows, dy: Array, gradients: Array, total: Array, part: Array, first: bool
) -> Callable[[], None]:
    size = (prod(dy.shape[:3]), dy.shape[3])
    copied = gradients[: size[0] * size[1]].reshape(dy.shape)
    matrix: Array = copied.reshape(size)
    copies = True
    if dy.dtype == gradients.dtype:
        try:
            matrix, copies = dy.reshape(size, copy=False), False
        except ValueError:
            copies = True
    transposed = matrix.T

    def step() -> None:
        windows.gather()
        if copies:
            load(dy, copied)
        if first:
            np.matmul(transposed, windows.matrix, out=total)
        else:
            np.matmul(transposed, windows.matrix, out=part)
            np.add(total, part, out=total)

    return step
