"""Batch norm's passes over rows of channels, and pools, in C: one pass over memory each.

Rows are dealt out to the session's threads. The pieces that they are cut into depend on the shape only, and so do the
results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import nan, prod
from typing import Any

import numpy as np

from trc_runtime.cpu.bind import Array, BoundNode
from trc_runtime.cpu.conv import team
from trc_runtime.cpu.registry import Run
from trc_runtime.cpu.rows.library import KINDS, kind_of, library
from trc_runtime.cpu.rows.parts import ACTIVATIONS, Gate, Row

PIECE = 1 << 16
"""Elements of a piece of rows: enough for a thread to be worth it."""


def takes(array: Array) -> bool:
    """Whether this form computes on arrays of that storage here."""
    return array.dtype in KINDS and library() is not None


class _Matrix:
    """An operand as rows of channels in memory. ValueError where it does not lie so."""

    def __init__(self, node: BoundNode, name: str) -> None:
        array = node.matrix(name)
        if array.shape[1] > 1 and array.strides[1] != array.itemsize:
            raise node.problem(f"channels of '{name}' do not lie side by side (strides {array.strides})")
        self.rows, self.channels = array.shape
        self.kind = kind_of(array.dtype)
        self._address, self._step = array.ctypes.data, array.strides[0]
        self.stride = array.strides[0] // array.itemsize

    def at(self, row: int) -> int:
        """The address of a row."""
        return self._address + row * self._step


def _address(array: Array) -> int:
    if not array.flags.c_contiguous:
        raise ValueError("numbers of channels must lie side by side")
    return array.ctypes.data


def _pieces(matrix: _Matrix) -> list[tuple[int, int]]:
    """(first row, rows) of each piece."""
    high = max(1, PIECE // max(1, matrix.channels))
    return [(r, min(high, matrix.rows - r)) for r in range(0, matrix.rows, high)]


def _all(name: str, calls: Sequence[tuple[Any, ...]]) -> Run:
    """Call a function of the library with each of the arguments, in as many threads as help."""
    function: Callable[..., None] = getattr(library(), name)
    threads = min(team.thread_count(), len(calls))

    def work(_: int, items: Iterator[tuple[Any, ...]]) -> None:
        for arguments in items:
            function(*arguments)

    def run() -> None:
        team.run(work, calls, threads)

    return run


def _summed(node: BoundNode, name: str, channels: int, calls: list[tuple[Any, ...]], sums: Array) -> Run:
    """Calls whose last argument is left to add: each writes (2, channels) sums, which are added in order."""
    partial = node.scratch((len(calls), 2, channels), np.float64)
    each = _all(name, [(*c, _address(partial[n])) for n, c in enumerate(calls)])

    def run() -> None:
        each()
        np.add.reduce(partial, axis=0, out=sums)

    return run


def moments(node: BoundNode, mean: Array | None, sums: Array) -> Run:
    """See `plain.moments`."""
    x = _Matrix(node, "x")
    given = 0 if mean is None else _address(mean)
    calls: list[tuple[Any, ...]] = [(x.kind, x.at(r), x.stride, n, x.channels, given) for r, n in _pieces(x)]
    return _summed(node, "trc_moments", x.channels, calls, sums)


def centred(node: BoundNode, mean: Array, factor: Array, beta: Array) -> Run:
    """See `plain.centred`."""
    x, y = _Matrix(node, "x"), _Matrix(node, "y")
    rows = [_address(a) for a in (mean, factor, beta)]
    _check(node, x, y)
    return _all("trc_centred", [(x.kind, x.at(r), x.stride, y.at(r), y.stride, n, x.channels, *rows)
                                for r, n in _pieces(x)])  # fmt: skip


def affine(node: BoundNode, scale: Row, shift: Row, others: Sequence[str], second: Sequence[Row], act: str) -> Run:
    """See `plain.affine`."""
    x, y = _Matrix(node, "x"), _Matrix(node, "y")
    other = _Matrix(node, others[0]) if others else None
    _check(node, x, y, *([] if other is None else [other]))
    rows = [_address(r.values) for r in (scale, shift, *second)] + [0] * (2 - len(second))
    number = ACTIVATIONS.index(act)
    calls: list[tuple[Any, ...]] = []
    for r, n in _pieces(x):
        added = (0, 0) if other is None else (other.at(r), other.stride)
        calls.append((x.kind, x.at(r), x.stride, *added, y.at(r), y.stride, n, x.channels, *rows, number))
    return _all("trc_affine", calls)


def _gate(gate: Gate | None) -> tuple[Any, ...]:
    """Scale, shift, low and high for the library; what is compared with NaN lets everything through."""
    if gate is None:
        return 0, 0, nan, nan
    return _address(gate.scale.values), _address(gate.shift.values), gate.low, nan if gate.high is None else gate.high


def reduce(node: BoundNode, gate: Gate | None, mean: Array, sums: Array) -> Run:
    """See `plain.reduce`."""
    dy, x = _Matrix(node, "dy"), _Matrix(node, "x")
    _check(node, x, dy)
    end = (x.channels, *_gate(gate), _address(mean))
    calls: list[tuple[Any, ...]] = [(x.kind, dy.at(r), dy.stride, x.at(r), x.stride, n, *end) for r, n in _pieces(x)]
    return _summed(node, "trc_reduce", x.channels, calls, sums)


def back(node: BoundNode, gate: Gate | None, mean: Array, slope: Array, level: Array, outer: Array) -> Run:
    """See `plain.back`."""
    dy, x, dx = _Matrix(node, "dy"), _Matrix(node, "x"), _Matrix(node, "dx")
    _check(node, x, dy, dx)
    end = (x.channels, *_gate(gate), *(_address(a) for a in (mean, slope, level, outer)))
    return _all("trc_back", [(x.kind, dy.at(r), dy.stride, x.at(r), x.stride, dx.at(r), dx.stride, n, *end)
                             for r, n in _pieces(x)])  # fmt: skip


# ---------------------------------------------------------------- pools


class Pool:
    """A pool's sizes for the library: see native.c.

    `sizes` are height and width of the map, rows and columns of outputs, channels, kernel, stride and padding.
    """

    def __init__(self, sizes: Sequence[int], images: int) -> None:
        self.sizes = list(sizes)
        self.images = images

    def forward(self, x: Array, y: Array, mask: Array | None, mean: bool) -> Run:
        """Maxima (and their places) or means of windows."""
        given = (kind_of(x.dtype), int(mean), self._pack(x, y, mask), x.ctypes.data, y.ctypes.data)
        marks = 0 if mask is None else mask.ctypes.data
        return self._run("trc_pool", (*given, marks), self.sizes[2], self.sizes[3])

    def backward(self, dy: Array, mask: Array | None, dx: Array, mean: bool) -> Run:
        """Gradients brought to the maxima, or spread over the windows."""
        marks = 0 if mask is None else mask.ctypes.data
        given = (kind_of(dy.dtype), int(mean), self._pack(dx, dy, mask), dy.ctypes.data, marks, dx.ctypes.data)
        return self._run("trc_pool_back", given, self.sizes[0], self.sizes[1])

    def _pack(self, wide: Array, narrow: Array, mask: Array | None) -> int:
        """The address of the sizes with the strides of pixels."""
        strides = [0 if a is None else a.strides[2] // a.itemsize for a in (wide, narrow, mask)]
        self._numbers = np.array([*self.sizes, *strides], np.int64)  # kept, for its address is passed on
        return self._numbers.ctypes.data

    def _run(self, name: str, given: tuple[Any, ...], high: int, across: int) -> Run:
        """`given` with the first and last row of each piece."""
        rows = self.images * high
        some = max(1, PIECE // max(1, across * self.sizes[4]))
        self._pass = _all(name, [(*given, r, min(r + some, rows)) for r in range(0, rows, some)])
        return self.run  # a method, which keeps the sizes alive

    def run(self) -> None:
        """Run what was bound last."""
        self._pass()


def _check(node: BoundNode, x: _Matrix, *others: _Matrix) -> None:
    for other in others:
        if (other.rows, other.channels, other.kind) != (x.rows, x.channels, x.kind):
            raise node.problem(f"takes {prod((x.rows, x.channels))} elements of one shape and type everywhere")
