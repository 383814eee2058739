"""Depthwise convolutions in NumPy: one multiplication and addition over whole rows of channels a tap.

Output channel k sees input channel k // m where k = m c. Images are dealt out to the session's threads; an image is
worked on in strips of rows that stay in a core's cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trc_runtime.cpu.bind import Array, BoundNode
from trc_runtime.cpu.conv import team
from trc_runtime.cpu.conv.gemm import Input
from trc_runtime.cpu.conv.geometry import Geometry, Job
from trc_runtime.cpu.conv.source import Filler
from trc_runtime.cpu.conv.sums import Statistics
from trc_runtime.cpu.conv.weights import Loaded
from trc_runtime.cpu.half import compute_type, load, store
from trc_runtime.cpu.registry import Run

STRIP_BYTES = 1 << 17
"""Bytes of a strip of results."""


@dataclass(frozen=True)
class _Strip:
    """Rows of a job's results: for every tap, where its channels' inputs lie and which row of weights it takes."""

    job: Job
    rows: slice
    values: Array
    product: Array
    taps: tuple[tuple[Array, int], ...]


class _Worker:
    """One thread's frame and strips."""

    def __init__(self, node: BoundNode, source: Input, g: Geometry, channels: int) -> None:
        self.filler = Filler(node, source.array, source.sliding.frame, 1, source.before)
        kind = self.filler.buffer.dtype
        widest = max(j.counts[1] for j in source.sliding.jobs)
        high = max(1, STRIP_BYTES // max(1, widest * channels * kind.itemsize))
        high = min(high, max(j.counts[0] for j in source.sliding.jobs))
        values = node.scratch((high * widest * channels,), kind)
        product = node.scratch((high * widest * channels,), kind)
        frame = self.filler.buffer[0]
        self.strips: list[_Strip] = []
        for job in source.sliding.jobs:
            for start in range(0, job.counts[0], high):
                rows = range(start, min(start + high, job.counts[0]))
                shape = (len(rows), job.counts[1], channels)
                size = shape[0] * shape[1] * channels
                taps: list[tuple[Array, int]] = []
                for number, (i, j) in enumerate(np.ndindex(*job.window)):
                    top, left = job.start[0] + i + start * job.step, job.start[1] + j
                    seen = frame[top:, left:][:: job.step, :: job.step][: shape[0], : shape[1]]
                    taps.append((seen, number))
                strip = _Strip(
                    job,
                    slice(rows.start, rows.stop),
                    values[:size].reshape(shape),
                    product[:size].reshape(shape),
                    tuple(taps),
                )
                self.strips.append(strip)


def _workers(node: BoundNode, source: Input, g: Geometry, channels: int) -> list[_Worker]:
    threads = min(team.thread_count(), source.array.shape[0])
    return [_Worker(node, source, g, channels) for _ in range(threads)]


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
    """The depthwise form of `gemm.correlate`."""
    many = g.k // g.c
    workers = _workers(node, source, g, target.shape[3])
    loaded = Loaded(node, weight)
    offset = None if bias is None else Loaded(node, bias)
    packed = [node.scratch((*job.window, g.k), loaded.values.dtype) for job in source.sliding.jobs]
    views = [loaded.values[:, j.taps[0]][:, :, j.taps[1], 0].transpose(1, 2, 0) for j in source.sliding.jobs]
    rows = {id(j): w.reshape(-1, g.k) for j, w in zip(source.sliding.jobs, packed, strict=True)}
    targets = [[strip.job.target(target)[:, strip.rows] for strip in worker.strips] for worker in workers]

    def image(worker: _Worker, outs: list[Array], n: int) -> None:
        worker.filler.fill(n, n + 1)
        for strip, out in zip(worker.strips, outs, strict=True):
            weights = rows[id(strip.job)]
            if not strip.taps:
                out[n].fill(0)
                continue
            for member in range(many):
                _tap_by_tap(strip, weights, member, many, backward)
            if offset is not None:
                np.add(strip.values, offset.values, out=strip.values)
            store(strip.values, out[n])

    def work(thread: int, images: Iterator[int]) -> None:
        workers[thread].filler.begin()
        for n in images:
            image(workers[thread], targets[thread], n)

    add_up = None if statistics is None else _whole_image_sums(node, target, statistics)

    def run() -> None:
        loaded.refresh()
        if offset is not None:
            offset.refresh()
        for matrix, view in zip(packed, views, strict=True):
            np.copyto(matrix, view)
        team.run(work, range(source.array.shape[0]), len(workers))
        if add_up is not None:
            add_up()

    return run


def _tap_by_tap(strip: _Strip, weights: Array, member: int, many: int, backward: bool) -> None:
    """Forward, results of member's output channels; backward, what those channels add to all results."""
    mine = slice(member, None, many)
    values = strip.values if backward else strip.values[..., mine]
    product = strip.product if backward else strip.product[..., mine]
    for seen, tap in strip.taps:
        inputs = seen[..., mine] if backward else seen
        if tap == 0 and (member == 0 or not backward):
            np.multiply(inputs, weights[tap, mine], out=values)
        else:
            np.multiply(inputs, weights[tap, mine], out=product)
            np.add(values, product, out=values)


def _whole_image_sums(node: BoundNode, target: Array, statistics: Statistics) -> Run:
    """The sums over a stored target, image by image in order (so that threads do not matter)."""
    kind = compute_type(target.dtype)
    size = (target.shape[1] * target.shape[2], target.shape[3])
    values = node.scratch(target.shape[1:], kind)

    def run() -> None:
        statistics.begin()
        for n in range(target.shape[0]):
            load(target[n], values)
            statistics.sums.add(values.reshape(size))
        statistics.finish()

    return run


def weight_gradient(node: BoundNode, g: Geometry, source: Input, dy: Array, dweight: Array) -> Run:
    """The depthwise form of `gemm.weight_gradient`; images' sums are added in float64, in order."""
    many = g.k // g.c
    workers = _workers(node, source, g, g.c)
    kind = compute_type(dy.dtype)
    taps = g.r * g.s
    partial = node.scratch((g.n, taps, g.k), np.float64)
    total = node.scratch((taps, g.k), np.float64)
    rounded = node.scratch((g.k, g.r, g.s, 1), kind)
    rows = [node.scratch((g.c,), kind) for _ in workers]
    dys = [node.scratch((*worker.strips[0].values.shape[:2], g.k), kind) for worker in workers]

    def work(thread: int, images: Iterator[int]) -> None:
        worker, row = workers[thread], rows[thread]
        worker.filler.begin()
        for n in images:
            worker.filler.fill(n, n + 1)
            sums = partial[n]
            sums.fill(0)
            for strip in worker.strips:
                given = dys[thread][: strip.values.shape[0]]
                load(dy[n, strip.rows], given)
                for member in range(many):
                    mine = slice(member, None, many)
                    for seen, tap in strip.taps:
                        np.multiply(seen, given[..., mine], out=strip.product)
                        np.add.reduce(strip.product.reshape(-1, g.c), axis=0, out=row)
                        np.add(sums[tap, mine], row, out=sums[tap, mine])

    def run() -> None:
        team.run(work, range(g.n), len(workers))
        np.add.reduce(partial, axis=0, out=total)
        np.copyto(rounded.reshape(g.k, taps), total.T, casting="same_kind")
        store(rounded, dweight)

    return run
