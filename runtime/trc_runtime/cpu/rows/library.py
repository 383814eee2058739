"""The compiled library of native.c: conversions, sums over rows, normalisations, pools."""

from __future__ import annotations

import ctypes
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trc_runtime.cpu.conv.build import BuildError, build

KINDS: dict[np.dtype[Any], int] = {np.dtype(np.float32): 0, np.dtype(np.float16): 1, np.dtype(np.uint16): 2}
"""Storage types by the number that the library calls them by."""


@cache
def library() -> ctypes.CDLL | None:
    """The compiled library, or None where it cannot be had: NumPy computes the same then."""
    source = (files("trc_runtime.cpu.rows") / "native.c").read_bytes()
    try:
        # each product and each sum is one rounding, as in NumPy
        return _declared(ctypes.CDLL(str(build(source, "rows", ("-ffp-contract=off",)))))
    except (BuildError, OSError):
        return None


def kind_of(storage: np.dtype[Any]) -> int:
    """The library's number of a storage type; KeyError for one that it lacks."""
    return KINDS[storage]


def _declared(found: ctypes.CDLL) -> ctypes.CDLL:
    p, n, x = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float
    signatures: dict[str, tuple[Any, ...]] = {
        "trc_load": (n, p, n, p, n, n, n),
        "trc_store": (n, p, n, p, n, n, n),
        "trc_affine": (n, p, n, p, n, p, n, n, n, p, p, p, p, n),
        "trc_centred": (n, p, n, p, n, n, n, p, p, p),
        "trc_moments": (n, p, n, n, n, p, p),
        "trc_reduce": (n, p, n, p, n, n, n, p, p, x, x, p, p),
        "trc_back": (n, p, n, p, n, p, n, n, n, p, p, x, x, p, p, p, p),
        "trc_pool": (n, n, p, p, p, p, n, n),
        "trc_pool_back": (n, n, p, p, p, p, n, n),
    }
    for name, arguments in signatures.items():
        function = getattr(found, name)
        function.argtypes = list(arguments)
        function.restype = None
    return found


def rows_of(array: NDArray[Any]) -> tuple[int, int, int] | None:
    """(rows, channels, elements from row to row) of an array taken as all dimensions but the last, and the last.

    None where it does not lie so in memory. A dense array of any shape is one row.
    """
    if array.flags.c_contiguous:
        return 1, array.size, array.size
    channels = array.shape[-1] if array.ndim else 1
    if channels > 1 and array.strides[-1] != array.itemsize:
        return None
    step, rows = 0, 1
    for length, stride in zip(reversed(array.shape[:-1]), reversed(array.strides[:-1]), strict=True):
        if length == 1:
            continue
        if step == 0:
            step = stride
        elif stride != step * rows:
            return None
        rows *= length
    if rows == 1:
        step = channels * array.itemsize
    return (rows, channels, step // array.itemsize) if step > 0 and step % array.itemsize == 0 else None
