"""Cutting arrays into blocks that stay in a core's cache while several operations pass over them."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np

from trc_runtime.cpu.bind import Array

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
