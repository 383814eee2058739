"""Philox4x32-10: random numbers that are a function of a key and a counter, and of nothing else.

The cipher is that of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011), with their constants
(spec/training-facts.md section 2.1). There are two ways to use it:

- *by offset*: key = seed, counter = (offset low, offset high, 0, 0); the published golden values are of this form;
- *by meaning* (what trc does): key = seed, counter = (CRC-32 of the stream's name, epoch or iteration, sample or
  global row, element / 4). Element `e` of a row takes word `e % 4` of its counter. So a number depends neither on
  the number of workers or ranks, nor on how a batch is cut, nor on the order of execution.

Everything is computed in blocks that fit a core's cache, in scratch arrays which a `Philox` object keeps.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import cos, log, pi, sin, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]

_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW = 0xFFFFFFFF
_ROUNDS = 10
_SHIFT = np.uint64(32)
_MASK = np.uint64(_LOW)
_MUL0, _MUL1 = np.uint64(_M0), np.uint64(_M1)

BLOCK = 4096
"""Counters in a block: six arrays of 32 KiB, which stay in a second-level cache."""

UNIFORM_SCALE = 2.0**-24
"""A word's upper 24 bits times this are a number in [0, 1) that float32 holds exactly."""


# ---------------------------------------------------------------- names of streams


def stream_id(name: str) -> int:
    """The counter word of a stream: the CRC-32 of its name in UTF-8."""
    return zlib.crc32(name.encode())


def check_streams(names: Iterable[str]) -> dict[str, int]:
    """The ids of the streams; ValueError if two different names have the same id."""
    ids: dict[str, int] = {}
    owners: dict[int, str] = {}
    for name in names:
        number = stream_id(name)
        owner = owners.setdefault(number, name)
        if owner != name:
            raise ValueError(
                f"random streams '{owner}' and '{name}' have the same CRC-32 (0x{number:08x}), so they would draw the "
                "same numbers: rename one of the two"
            )
        ids[name] = number
    return ids


# ---------------------------------------------------------------- one counter at a time


def philox(seed: int, counter: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """The four 32-bit words of one counter. `seed` is taken modulo 2**64."""
    k0, k1 = seed & _LOW, seed >> 32 & _LOW
    c0, c1, c2, c3 = (c & _LOW for c in counter)
    for _ in range(_ROUNDS):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & _LOW, (p0 >> 32) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    return c0, c1, c2, c3


def philox_at(seed: int, offset: int) -> tuple[int, int, int, int]:
    """The four words at a 64-bit offset: counter (offset low, offset high, 0, 0)."""
    return philox(seed, (offset & _LOW, offset >> 32 & _LOW, 0, 0))


def uniform_of(word: int) -> float:
    """The number in [0, 1) that a word stands for: its upper 24 bits."""
    return (word >> 8) * UNIFORM_SCALE


def word64_of(first: int, second: int) -> int:
    """The 64-bit word of two words; the first is the upper half."""
    return first << 32 | second


def normals_of(first: int, second: int) -> tuple[float, float]:
    """Two standard normal numbers of two words (Box and Muller), rounded to float32.

    Evaluated in double precision and rounded once, so that they do not depend on a machine's float32 functions.
    """
    u1 = (first >> 8 | 1) * UNIFORM_SCALE
    u2 = (second >> 8) * UNIFORM_SCALE
    radius = sqrt(-2.0 * log(u1))
    return float(np.float32(radius * cos(2 * pi * u2))), float(np.float32(radius * sin(2 * pi * u2)))


# ---------------------------------------------------------------- many counters at a time


@dataclass(frozen=True)
class Stream:
    """A keyed stream: `seed` (modulo 2**64), `name_id` (see `stream_id`), `step` (epoch or iteration)."""

    seed: int
    name_id: int
    step: int = 0

    @classmethod
    def named(cls, seed: int, name: str, step: int = 0) -> Stream:
        """The stream of that name."""
        return cls(seed, stream_id(name), step)


def _round_keys(seed: int) -> list[tuple[np.uint64, np.uint64]]:
    k0, k1 = seed & _LOW, seed >> 32 & _LOW
    return [(np.uint64((k0 + n * _W0) & _LOW), np.uint64((k1 + n * _W1) & _LOW)) for n in range(_ROUNDS)]


@dataclass(frozen=True)
class _Block:
    """The words of a rectangle of counters: `words[i][r, q]` is word i of row `row + r`, counter `quad + q`."""

    row: int
    rows: int
    quad: int
    quads: int
    words: tuple[U64, U64, U64, U64]


class Philox:
    """Fills arrays with the numbers of keyed streams.

    An object owns some scratch memory (about 0.3 MiB), so that filling allocates nothing of the array's size; it
    must not be used by two threads at once. Two-dimensional arrays are (row, element); `first_row` is the global
    row of row 0.
    """

    def __init__(self) -> None:
        self._full = [np.empty(BLOCK, np.uint64) for _ in range(6)]
        self._edge = [np.empty(BLOCK, np.uint64) for _ in range(8)]
        self._count = np.arange(BLOCK, dtype=np.uint64)
        self._float = np.empty((3, BLOCK), np.float64)

    def words(self, stream: Stream, out: NDArray[Any], first_row: int = 0) -> None:
        """Fill a two-dimensional uint32 array with words."""
        for block in self._blocks(stream, out.shape[0], out.shape[1], first_row):
            for i, target in self._targets(block, out):
                np.copyto(target, block.words[i][:, : target.shape[1]], casting="unsafe")

    def uniforms(self, stream: Stream, out: NDArray[Any], first_row: int = 0) -> None:
        """Fill a two-dimensional floating-point array with uniform numbers in [0, 1) of 24 bits."""
        for block in self._blocks(stream, out.shape[0], out.shape[1], first_row):
            for i, target in self._targets(block, out):
                word = block.words[i]
                np.right_shift(word, np.uint64(8), out=word)
                np.multiply(word[:, : target.shape[1]], UNIFORM_SCALE, out=target, casting="same_kind")

    def normals(self, stream: Stream, out: NDArray[Any], first_row: int = 0) -> None:
        """Fill a two-dimensional floating-point array with standard normal numbers (as `normals_of`).

        Words 0 and 1 of a counter give its elements 0 and 1, words 2 and 3 its elements 2 and 3. The numbers are
        float32 values also where the array is of float64, so that both precisions start from the same place.
        """
        for block in self._blocks(stream, out.shape[0], out.shape[1], first_row):
            size = block.rows * block.quads
            radius, angle, value = (f[:size].reshape(block.rows, block.quads) for f in self._float)
            for i, target in self._targets(block, out):
                if i % 2 == 0:
                    first, second = block.words[i], block.words[i + 1]
                    np.right_shift(first, np.uint64(8), out=first)
                    np.bitwise_or(first, np.uint64(1), out=first)
                    np.multiply(first, UNIFORM_SCALE, out=radius)
                    np.log(radius, out=radius)
                    np.multiply(radius, -2.0, out=radius)
                    np.sqrt(radius, out=radius)
                    np.right_shift(second, np.uint64(8), out=second)
                    np.multiply(second, UNIFORM_SCALE * 2 * pi, out=angle)
                (np.cos if i % 2 == 0 else np.sin)(angle, out=value)
                np.multiply(value, radius, out=value)
                np.copyto(target, value[:, : target.shape[1]].astype(np.float32))

    def at_least(self, stream: Stream, probability: float, out: NDArray[Any], first_row: int = 0) -> None:
        """Fill a two-dimensional bool or int8 array with 1 where the uniform number is >= `probability`, else 0."""
        # u >= p  <=>  (word >> 8) >= ceil(p * 2**24)  <=>  word >= that * 2**8
        threshold = np.uint64(-int(-(probability * 2.0**24) // 1) << 8)
        flags = out.view(np.bool_)
        for block in self._blocks(stream, out.shape[0], out.shape[1], first_row):
            for i, target in self._targets(block, flags):
                np.greater_equal(block.words[i][:, : target.shape[1]], threshold, out=target)

    def row_words64(self, stream: Stream, out: NDArray[np.uint64], first_row: int = 0) -> None:
        """Fill a one-dimensional uint64 array: the first 64-bit word of each row (element 0). For shuffles."""
        for block in self._blocks(stream, out.shape[0], 1, first_row):
            target = out[block.row : block.row + block.rows]
            np.left_shift(block.words[0][:, 0], _SHIFT, out=target)
            np.bitwise_or(target, block.words[1][:, 0], out=target)

    @staticmethod
    def _targets(block: _Block, out: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
        """For each word of a block's counters, the part of `out` it belongs to (the last may be narrower)."""
        rows = slice(block.row, block.row + block.rows)
        for i in range(4):
            target = out[rows, block.quad * 4 + i : (block.quad + block.quads) * 4 : 4]
            if target.shape[1]:
                yield i, target

    def _blocks(self, stream: Stream, rows: int, elements: int, first_row: int) -> Iterator[_Block]:
        """The words of all counters of (rows, elements), block by block, in scratch that the next block overwrites."""
        if rows and first_row + rows > 1 << 32:
            raise ValueError(f"row {first_row + rows - 1} does not fit a counter word of 32 bits")
        quads = (elements + 3) // 4
        if not rows or not quads:
            return
        keys = _round_keys(stream.seed)
        wide = min(quads, BLOCK)
        tall = min(rows, BLOCK // wide)
        for row in range(0, rows, tall):
            for quad in range(0, quads, wide):
                r, q = min(tall, rows - row), min(wide, quads - quad)
                yield _Block(row, r, quad, q, self._cipher(stream, keys, first_row + row, r, quad, q))

    def _cipher(
        self, stream: Stream, keys: list[tuple[np.uint64, np.uint64]], row: int, rows: int, quad: int, quads: int
    ) -> tuple[U64, U64, U64, U64]:
        """Ten rounds over a rectangle of counters.

        The words of the first rounds depend on the row only or on the column only, so they are computed on the
        rectangle's edges; from the fourth round on everything is full.
        """
        r0, r1, r2, r3 = (e[:rows].reshape(rows, 1) for e in self._edge[:4])
        q0, q1 = (e[:quads].reshape(1, quads) for e in self._edge[4:6])
        c0, c1, c2, c3, p0, p1 = (f[: rows * quads].reshape(rows, quads) for f in self._full)
        first = _M0 * (stream.name_id & _LOW)

        # round 1: counter = (name, step, row, quad)
        k0, k1 = keys[0]
        np.add(self._count[:rows].reshape(rows, 1), np.uint64(row), out=r1)
        np.multiply(r1, _MUL1, out=r1)
        np.right_shift(r1, _SHIFT, out=r0)
        np.bitwise_xor(r0, np.uint64(stream.step & _LOW) ^ k0, out=r0)
        np.bitwise_and(r1, _MASK, out=r1)
        np.add(self._count[:quads].reshape(1, quads), np.uint64(quad), out=q0)
        np.bitwise_xor(q0, np.uint64(first >> 32) ^ k1, out=q0)
        last = np.uint64(first & _LOW)

        # round 2: word 0 becomes full; word 1 is the column's, words 2 and 3 are the row's
        k0, k1 = keys[1]
        np.multiply(q0, _MUL1, out=q1)
        np.right_shift(q1, _SHIFT, out=q0)
        np.bitwise_and(q1, _MASK, out=q1)
        np.bitwise_xor(r1, k0, out=r1)
        np.bitwise_xor(q0, r1, out=c0)
        np.multiply(r0, _MUL0, out=r3)
        np.right_shift(r3, _SHIFT, out=r2)
        np.bitwise_xor(r2, last ^ k1, out=r2)
        np.bitwise_and(r3, _MASK, out=r3)

        # round 3: words 0, 2 and 3 are full; word 1 is the row's
        k0, k1 = keys[2]
        np.multiply(c0, _MUL0, out=p0)
        np.multiply(r2, _MUL1, out=r1)
        np.right_shift(r1, _SHIFT, out=r0)
        np.bitwise_xor(r0, k0, out=r0)
        np.bitwise_xor(r0, q1, out=c0)
        np.bitwise_and(r1, _MASK, out=r1)
        np.right_shift(p0, _SHIFT, out=c2)
        np.bitwise_xor(r3, k1, out=r3)
        np.bitwise_xor(c2, r3, out=c2)
        np.bitwise_and(p0, _MASK, out=c3)

        below: U64 = r1
        for k0, k1 in keys[3:]:
            np.multiply(c0, _MUL0, out=p0)
            np.multiply(c2, _MUL1, out=p1)
            np.right_shift(p1, _SHIFT, out=c0)
            np.bitwise_xor(c0, below, out=c0)
            np.bitwise_xor(c0, k0, out=c0)
            np.right_shift(p0, _SHIFT, out=c2)
            np.bitwise_xor(c2, c3, out=c2)
            np.bitwise_xor(c2, k1, out=c2)
            np.bitwise_and(p1, _MASK, out=c1)
            np.bitwise_and(p0, _MASK, out=c3)
            below = c1
        return c0, c1, c2, c3
