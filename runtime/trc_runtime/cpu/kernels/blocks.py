"""Cutting arrays into blocks that stay in a core's cache while several operations pass over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, prod

import numpy as np

from trc_runtime.cpu.bind import Array, BoundNode
from trc_runtime.cpu.half import compute_type, is_half, load, store
from trc_runtime.cpu.registry import Run

BLOCK_BYTES = 1 << 16
"""Bytes of one array in a block. A few arrays of this size fit a second-level cache together."""

SUM_ROWS = 128
"""Rows that one running sum adds up; the sums of such groups are added in a second level. So the error of a column
sum grows with SUM_ROWS + rows / SUM_ROWS, not with the rows."""


def cut(arrays: Sequence[Array], size: int | None = None) -> list[tuple[Array, ...]]:
    """Arrays of equal length, cut along their first dimension into tuples of views of at most `size` entries.

    By default blocks have about BLOCK_BYTES of the first array.
    """
    if size is None:
        size = block_rows(arrays[0])
    length = arrays[0].shape[0]
    return [tuple(a[n : n + size] for a in arrays) for n in range(0, length, size)]


def block_rows(array: Array) -> int:
    """Entries along the first dimension that are about BLOCK_BYTES of an array."""
    row = array.itemsize * max(1, array[:1].size)
    return max(1, BLOCK_BYTES // row)


def partial_rows(rows: int) -> int:
    """Rows of scratch that `column_sums` needs for so many rows."""
    return ceil(rows / SUM_ROWS)


def column_sums(matrix: Array, partial: Array, out: Array) -> None:
    """Sum a (rows, columns) matrix over its rows; `partial` is (partial_rows(rows), columns)."""
    rows = matrix.shape[0]
    if rows <= SUM_ROWS:
        np.add.reduce(matrix, axis=0, out=out)
        return
    for n in range(partial.shape[0]):
        np.add.reduce(matrix[n * SUM_ROWS : (n + 1) * SUM_ROWS], axis=0, out=partial[n])
    np.add.reduce(partial, axis=0, out=out)


@cache
def _constant(value: float, dtype: np.dtype[np.generic], size: int) -> Array:
    array: Array = np.full(size, value, dtype)
    array.flags.writeable = False
    return array


def filled(value: float, like: Array) -> Array:
    """An array of one number, of the type and shape of a block.

    NumPy's maximum of two arrays takes a third of its time with an array and a number.
    """
    size = max(BLOCK_BYTES // like.itemsize, like.size)
    return _constant(value, like.dtype, size)[: like.size].reshape(like.shape)


@dataclass(frozen=True)
class Block:
    """A piece of several operands in the type to compute in.

    `values` are the operands' arrays, those read first: their own memory, or scratch for half storage and then dense.
    `loads` and `stores` are (stored, value) pairs of the half ones.
    """

    values: tuple[Array, ...]
    loads: tuple[tuple[Array, Array], ...]
    stores: tuple[tuple[Array, Array], ...]

    def load(self) -> None:
        """Convert what is read."""
        for stored, value in self.loads:
            load(stored, value)

    def store(self) -> None:
        """Round what was computed; bfloat16 results are lost from `values`."""
        for stored, value in self.stores:
            store(value, stored)


class Blocks:
    """Operands of one shape, cut into the same blocks.

    Blocks are one-dimensional where every operand is dense, else (or with `rows`) rows of all dimensions but the last:
    padded channels are not part of them. ValueError where shapes differ.
    """

    def __init__(
        self,
        node: BoundNode,
        reads: Sequence[str],
        writes: Sequence[str] = (),
        rows: bool = False,
        size: int | None = None,
    ) -> None:
        stored = [node[name] for name in (*reads, *writes)]
        shape = stored[0].shape
        for name, array in zip((*reads, *writes), stored, strict=True):
            if array.shape != shape:
                raise node.problem(f"'{reads[0]}' has the shape {shape}, '{name}' {array.shape}")
        self.flat = not rows and all(a.flags.c_contiguous for a in stored)
        self.shape: tuple[int, ...] = (prod(shape),) if self.flat else (prod(shape[:-1]), shape[-1])
        views = [a.reshape(self.shape, copy=False) for a in stored]
        row = 1 if self.flat else max(1, shape[-1])
        self.dtype = compute_type(stored[0].dtype)
        self.size = size or max(1, BLOCK_BYTES // (self.dtype.itemsize * row))
        self.size = min(self.size, max(1, self.shape[0]))
        """Entries of the first dimension in a block."""
        scratch = [node.scratch((self.size, *self.shape[1:]), compute_type(a.dtype)) if is_half(a.dtype) else None
                   for a in stored]  # fmt: skip
        self.blocks: list[Block] = []
        count = len(reads)
        for start in range(0, self.shape[0], self.size):
            parts = [v[start : start + self.size] for v in views]
            values = [p if s is None else s[: p.shape[0]] for p, s in zip(parts, scratch, strict=True)]
            pairs = [None if s is None else (p, v) for p, s, v in zip(parts, scratch, values, strict=True)]
            self.blocks.append(
                Block(
                    tuple(values),
                    tuple(p for p in pairs[:count] if p is not None),
                    tuple(p for p in pairs[count:] if p is not None),
                )
            )

    def __iter__(self) -> Iterator[Block]:
        """The blocks in order."""
        return iter(self.blocks)

    @property
    def elements(self) -> int:
        """The most elements that an operand has in a block."""
        return self.size * prod(self.shape[1:])

    def scratch(self, node: BoundNode, dtype: np.dtype[np.generic] | None = None) -> Array:
        """Temporary memory of a block's shape, by default in the compute type."""
        return node.scratch((self.size, *self.shape[1:]), dtype or self.dtype)


def run_blocks(blocks: Blocks, apply: Callable[..., None], *scratch: Array) -> Run:
    """Call `apply` with every block's values, and with `scratch` cut to the block, one block after another."""
    work = [(b, (*b.values, *(s[: b.values[0].shape[0]] for s in scratch))) for b in blocks.blocks]

    def run() -> None:
        for block, values in work:
            block.load()
            apply(*values)
            block.store()

    return run


class Whole:
    """An operand as one dense array in the compute type: its own memory, or scratch for half storage.

    Call `load` in every run before `values` is read, or `store` after it was written.
    """

    def __init__(self, node: BoundNode, name: str, shape: tuple[int, ...] | None = None) -> None:
        """`shape` defaults to (first dimension, all others)."""
        stored = node[name]
        if shape is None:
            shape = (stored.shape[0], prod(stored.shape[1:]))
        self._stored: Array | None = None
        if not is_half(stored.dtype):
            self.values = node.samples(name).reshape(shape, copy=False)
            return
        self._stored = stored
        self._copy = node.scratch(stored.shape, compute_type(stored.dtype))
        self.values = self._copy.reshape(shape)

    def load(self) -> None:
        """Convert the stored values."""
        if self._stored is not None:
            load(self._stored, self._copy)

    def store(self) -> None:
        """Round into storage; bfloat16 results are lost from `values`."""
        if self._stored is not None:
            store(self._copy, self._stored)
