"""The compiled engine's depthwise form: one output a channel, blocks of images dealt out to threads."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from trc_runtime.cpu.bind import Array, BoundNode
from trc_runtime.cpu.conv import team
from trc_runtime.cpu.conv.build import library
from trc_runtime.cpu.conv.frames import F32, Frames, address_of, lies_ready, offsets, strides_of
from trc_runtime.cpu.conv.gemm import Input
from trc_runtime.cpu.conv.geometry import Geometry
from trc_runtime.cpu.conv.sums import Statistics
from trc_runtime.cpu.conv.weights import Loaded
from trc_runtime.cpu.half import load, store
from trc_runtime.cpu.registry import Run


def correlate(
    node: BoundNode,
    g: Geometry,
    source: Input,
    weight: Array,
    target: Array,
    bias: Array | None = None,
    statistics: Statistics | None = None,
) -> Run:
    """Forward pass and data gradient, image by image (see `gemm.correlate`)."""
    threads = min(team.thread_count(), g.n)
    plain = lies_ready(source, 1)
    frames = [Frames(node, source, 1, 1, plain) for _ in range(threads)]
    direct = target.dtype == F32
    values = [target if direct else node.scratch((1, *target.shape[1:]), F32) for _ in range(threads)]
    results = [address_of(v) for v in values]
    out_image, row, pixel, _ = strides_of(values[0])
    image, line, step = frames[0].strides
    loaded = Loaded(node, weight)
    offset = None if bias is None else Loaded(node, bias)
    bias_address = 0 if offset is None else address_of(offset.values)
    empty = [[j.target(v) for j in source.sliding.jobs if 0 in j.window] for v in values]
    jobs = [j for j in source.sliding.jobs if 0 not in j.window]
    taps = [node.scratch((*j.window, g.c), F32) for j in jobs]
    views = [loaded.values[:, j.taps[0]][:, :, j.taps[1], 0].transpose(1, 2, 0) for j in jobs]
    tables = [
        (
            offsets(1, j.counts, (image, line * j.step, step * j.step), j.start[0] * line + j.start[1] * step),
            offsets(1, j.counts, (0, row * j.spacing, pixel * j.spacing), j.origin[0] * row + j.origin[1] * pixel),
            address_of(packed),
        )
        for j, packed in zip(jobs, taps, strict=True)
    ]
    sums = None if statistics is None else node.scratch((g.n, 2, g.c), np.float64)
    sums_address = 0 if sums is None else address_of(sums)

    def work(thread: int, images: Iterator[int]) -> None:
        frames[thread].begin()
        if not direct:
            for rest in empty[thread]:
                rest.fill(0)
        for n in images:
            frame = frames[thread].fill(n, n + 1, 0)
            out = results[thread] + (4 * n * out_image if direct else 0)
            for job, (begins, ends, packed) in zip(jobs, tables, strict=True):
                library().trc_depthwise(
                    frame,
                    begins.address,
                    out,
                    ends.address,
                    prod(job.counts),
                    *job.window,
                    line,
                    step,
                    packed,
                    g.c,
                    bias_address,
                )
            if not direct:
                store(values[thread][0], target[n])
                if sums is not None:
                    load(target[n], values[thread][0])
            if sums is not None:
                library().trc_sums(out, prod(target.shape[1:3]), g.c, pixel, sums_address + 16 * n * g.c)

    def run() -> None:
        loaded.refresh()
        if offset is not None:
            offset.refresh()
        for packed, view in zip(taps, views, strict=True):
            np.copyto(packed, view)
        if direct:
            for rest in empty[0]:
                rest.fill(0)
        team.run(work, range(g.n), threads)
        if sums is not None and statistics is not None:
            statistics.gather(sums)

    return run


def weight_gradient(node: BoundNode, g: Geometry, source: Input, dy: Array, dweight: Array) -> Run:
    """Weight gradient: an image's sums in float32, row by row; the images' sums added in float64, in order."""
    (job,) = source.sliding.jobs
    threads = min(team.thread_count(), g.n)
    plain = lies_ready(source, 1)
    frames = [Frames(node, source, 1, 1, plain) for _ in range(threads)]
    image, line, step = frames[0].strides
    begins = offsets(1, job.counts, (image, line * job.step, step * job.step), 0)
    direct = dy.dtype == F32 and dy.flags.c_contiguous
    given = [dy if direct else node.scratch((1, *dy.shape[1:]), F32) for _ in range(threads)]
    addresses = [address_of(values) for values in given]
    partial = node.scratch((g.n, g.r * g.s, g.c), F32)
    partial_address = address_of(partial)
    total = node.scratch((g.r * g.s, g.c), np.float64)
    rounded = node.scratch((g.c, g.r, g.s, 1), F32)

    def work(thread: int, images: Iterator[int]) -> None:
        frames[thread].begin()
        for n in images:
            frame = frames[thread].fill(n, n + 1, 0)
            if not direct:
                load(dy[n], given[thread][0])
            library().trc_depthwise_outer(
                frame,
                begins.address,
                addresses[thread] + (4 * n * g.p * g.q * g.c if direct else 0),
                g.p,
                g.q,
                g.r,
                g.s,
                line,
                step,
                g.c,
                partial_address + 4 * n * g.r * g.s * g.c,
            )

    def run() -> None:
        team.run(work, range(g.n), threads)
        total.fill(0)
        for values in partial:
            np.add(total, values, out=total)
        np.copyto(rounded.reshape(g.c, g.r * g.s), total.T, casting="same_kind")
        store(rounded, dweight)

    return run
