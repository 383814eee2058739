"""The compiled engine: float32 arithmetic in native.c, blocks of images dealt out to threads.

float32 arrays are read where they lie, prologue included. Half storage is converted by the NumPy code, block by
block (in a single group only). Results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import ceil, prod

import numpy as np

from trc_runtime.cpu.bind import Array, BoundNode
from trc_runtime.cpu.conv import native_depthwise, team
from trc_runtime.cpu.conv.build import library
from trc_runtime.cpu.conv.frames import F32, Frames, Table, address_of, lies_ready, offsets, strides_of, wide
from trc_runtime.cpu.conv.gemm import Input
from trc_runtime.cpu.conv.geometry import Geometry, Job
from trc_runtime.cpu.conv.sums import Statistics
from trc_runtime.cpu.conv.weights import Loaded, of_job
from trc_runtime.cpu.half import load, store
from trc_runtime.cpu.registry import Run

PIXELS = 256
"""Results a channel that a block of images has at least: so many share what is read of the weights."""

FRAME_BYTES = 1 << 25
"""Bytes of frames that a weight gradient holds at a time."""


def refusal(g: Geometry, source: Input, weight: Array) -> str | None:
    """Why this engine does not take a convolution, or None."""
    if source.array.dtype == np.float64:
        return "it computes in float32"
    if g.depthwise:
        return None if g.k == g.c else "it gives a channel of a depthwise convolution one output"
    if g.groups > 1 and (source.array.dtype != F32 or weight.dtype != F32):
        return "it takes groups in float32 storage only"
    return None


class _Packed:
    """Weights of one job and group as panels, with what they are made from."""

    def __init__(self, node: BoundNode, weight: Array, g: Geometry, job: Job, group: int, backward: bool) -> None:
        view = of_job(weight, g, job, group, backward)
        rows, self.columns = prod(view.shape[:3]), view.shape[3]
        base = (address_of(view) - address_of(weight)) // 4
        a, b, c, self._stride = (s // 4 for s in view.strides)
        i, j, k = np.ogrid[: view.shape[0], : view.shape[1], : view.shape[2]]
        self._from = Table(base + i * a + j * b + k * c)
        self._weight = address_of(weight)
        self._rows = rows
        self.panels = ceil(self.columns / wide())
        self._memory = node.scratch((self.panels * rows * wide(),), F32)
        self.address = address_of(self._memory)

    def pack(self, panel: int) -> None:
        library().trc_pack(
            self._weight, self._from.address, self._rows, self.columns, self._stride, panel, self.address
        )


class _Pass:
    """What all blocks of a forward pass or data gradient share."""

    def __init__(self, node: BoundNode, g: Geometry, source: Input, weight: Array, target: Array, backward: bool):
        self.g, self.source, self.target = g, source, target
        images = target.shape[0]
        pixels = max(1, sum(prod(j.counts) for j in source.sliding.jobs))
        self.images = max(1, min(images, ceil(PIXELS / pixels)))
        self.blocks = [(n, min(n + self.images, images)) for n in range(0, images, self.images)]
        self.threads = min(team.thread_count(), len(self.blocks))
        self.plain = lies_ready(source, g.groups)
        self.loaded = Loaded(node, weight)
        jobs = [j for j in source.sliding.jobs if 0 not in j.window]
        self.frames = [Frames(node, source, g.groups, self.images, self.plain) for _ in range(self.threads)]
        self.direct = target.dtype == F32
        shape = (self.images, *target.shape[1:])
        self.values = [target if self.direct else node.scratch(shape, F32) for _ in range(self.threads)]
        self._results = [address_of(values) for values in self.values]
        empty = [j for j in source.sliding.jobs if 0 in j.window]
        self.empty = [[j.target(values) for j in empty] for values in self.values]
        image, row, pixel, _ = strides_of(self.values[0])
        self.out_strides = image, row, pixel
        self.narrow = target.shape[3] // g.groups
        image, line, step = self.frames[0].strides
        self.line = line
        self.jobs: list[tuple[Job, Table, Table, list[_Packed]]] = []
        for job in jobs:
            first = job.start[0] * line + job.start[1] * step
            begins = offsets(self.images, job.counts, (image, line * job.step, step * job.step), first)
            origin = job.origin[0] * row + job.origin[1] * pixel
            ends = offsets(
                self.images, job.counts, (self.out_strides[0], row * job.spacing, pixel * job.spacing), origin
            )
            packed = [_Packed(node, self.loaded.values, g, job, group, backward) for group in range(g.groups)]
            self.jobs.append((job, begins, ends, packed))
        self.panels = [(p, n) for _, _, _, packed in self.jobs for p in packed for n in range(p.panels)]

    def pack(self, thread: int, panels: Iterator[tuple[_Packed, int]]) -> None:
        for packed, panel in panels:
            packed.pack(panel)

    def compute(self, thread: int, start: int, stop: int, bias: int) -> int:
        """Compute a block; the address of its results."""
        frames = self.frames[thread]
        out = self._results[thread] + (4 * start * self.out_strides[0] if self.direct else 0)
        for group in range(self.g.groups):
            frame = frames.fill(start, stop, group)
            offset = bias + 4 * group * self.narrow if bias else 0
            results = out + 4 * group * self.narrow
            for job, begins, ends, packed in self.jobs:
                library().trc_correlate(
                    frame,
                    begins.address,
                    results,
                    ends.address,
                    (stop - start) * prod(job.counts),
                    job.window[0],
                    self.line,
                    job.window[1] * frames.channels,
                    packed[group].address,
                    self.narrow,
                    offset,
                )
        return out


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
    """The compiled form of `gemm.correlate`."""
    if g.depthwise:
        return native_depthwise.correlate(node, g, source, weight, target, bias, statistics)
    whole = _Pass(node, g, source, weight, target, backward)
    offset = None if bias is None else Loaded(node, bias)
    bias_address = 0 if offset is None else address_of(offset.values)
    channels = target.shape[3]
    dense = strides_of(target)[2] == channels or not whole.direct
    sums = None if statistics is None else node.scratch((len(whole.blocks), 2, channels), np.float64)
    sums_address = 0 if sums is None else address_of(sums)

    def work(thread: int, blocks: Iterator[int]) -> None:
        whole.frames[thread].begin()
        for number in blocks:
            start, stop = whole.blocks[number]
            out = whole.compute(thread, start, stop, bias_address)
            if not whole.direct:
                values = whole.values[thread][: stop - start]
                store(values, target[start:stop])
                if sums is not None:
                    load(target[start:stop], values)
            if sums is not None:
                rows = (stop - start) * prod(target.shape[1:3])
                library().trc_sums(out, rows, channels, channels, sums_address + 16 * number * channels)

    if sums is not None and not dense:
        raise node.problem("statistics need an output without padded channels")

    def run() -> None:
        whole.loaded.refresh()
        if offset is not None:
            offset.refresh()
        team.run(whole.pack, whole.panels, team.thread_count())
        for results in whole.empty[: 1 if whole.direct else None]:
            for rest in results:
                rest.fill(0)
        team.run(work, range(len(whole.blocks)), whole.threads)
        if sums is not None and statistics is not None:
            statistics.gather(sums)

    return run


def weight_gradient(node: BoundNode, g: Geometry, source: Input, dy: Array, dweight: Array) -> Run:
    """The compiled form of `gemm.weight_gradient`.

    A thread takes a part of dweight and adds up over all images in order, some images after another.
    """
    if g.depthwise:
        return native_depthwise.weight_gradient(node, g, source, dy, dweight)
    (job,) = source.sliding.jobs
    frame, narrow, channels = source.sliding.frame, g.k // g.groups, g.c // g.groups
    plain = lies_ready(source, g.groups) and channels % wide() == 0
    size = 4 * max(1, frame.height * frame.width * channels)
    held = max(1, min(g.n, FRAME_BYTES // size))
    block = max(1, min(held, ceil(PIXELS / (g.p * g.q))))
    threads = team.thread_count()
    half = source.array.dtype != F32
    shared = Frames(node, Input(source.array, source.sliding, source.before), g.groups, held, plain)
    image, line, step = shared.strides
    begins = offsets(block, job.counts, (image, line * job.step, step * job.step), 0)
    direct = dweight.dtype == F32 and dweight.flags.c_contiguous
    total = dweight if direct else node.scratch(dweight.shape, F32)
    given = dy if dy.dtype == F32 and _pixels_dense(dy) else node.scratch((held, *dy.shape[1:]), F32)
    copied = given is not dy
    dy_image, _, dy_pixel, _ = strides_of(given)
    taps = g.r * g.s * channels
    parts = _parts(g, job.window[1] * channels, narrow)
    held_blocks = [(n, min(n + held, g.n)) for n in range(0, g.n, held)]

    given_address, total_address = address_of(given), address_of(total)

    def fill(_: int, images: Iterator[tuple[int, int, int]]) -> None:
        for start, n, group in images:
            shared.fill(start + n, start + n + 1, group, n)

    def add(start: int, stop: int, group: int, part: _Part) -> None:
        k = group * narrow + part.channel
        result = total_address + 4 * (k * taps + part.row * g.s * channels + part.reach)
        for n in range(start, stop, block):
            first = shared.fill(n, n, group) if plain else shared.address + 4 * (n - start) * image
            library().trc_outer(
                first + 4 * (part.row * line + part.reach),
                begins.address,
                given_address + 4 * ((n - start if copied else n) * dy_image + k),
                dy_pixel,
                min(block, stop - n) * g.p * g.q,
                part.channels,
                part.reaches,
                result,
                taps,
            )

    def run() -> None:
        total.fill(0)
        shared.begin()
        for start, stop in held_blocks:
            if copied:
                load(dy[start:stop], given[: stop - start])
            for group in range(g.groups):
                if half:
                    shared.fill(start, stop, group)
                elif not plain:
                    team.run(fill, [(start, n, group) for n in range(stop - start)], threads)
                team.run(partial(_each, add, start, stop, group), parts, threads)
        if not direct:
            store(total, dweight)

    return run


@dataclass(frozen=True)
class _Part:
    """A part of a group's dweight: a row of the kernel, `reaches` floats of it and `channels` channels."""

    row: int
    reach: int
    reaches: int
    channel: int
    channels: int


def _each(
    add: Callable[[int, int, int, _Part], None], start: int, stop: int, group: int, _: int, parts: Iterator[_Part]
) -> None:
    for part in parts:
        add(start, stop, group, part)


def _pixels_dense(array: Array) -> bool:
    """Whether all pixels of an array lie at equal distances."""
    image, row, pixel, _ = strides_of(array)
    return row == pixel * array.shape[2] and image == row * array.shape[1]


def _parts(g: Geometry, reach: int, narrow: int) -> list[_Part]:
    """A group's dweight in parts for the threads; a kernel's row has `reach` floats, the group `narrow` channels."""
    across, down = ceil(reach / (6 * wide())), ceil(narrow / 128)
    while g.r * across * down < 8 and (reach > across * wide() or narrow > 24 * down):
        if reach > across * wide():
            across += 1
        else:
            down += 1
    wide_part = ceil(ceil(reach / across) / wide()) * wide()
    deep_part = ceil(ceil(narrow / down) / 12) * 12
    return [
        _Part(r, j, min(wide_part, reach - j), k, min(deep_part, narrow - k))
        for r in range(g.r)
        for j in range(0, reach, wide_part)
        for k in range(0, narrow, deep_part)
    ]
