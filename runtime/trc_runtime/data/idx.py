"""IDX files, the format of MNIST: read defensively, gzip-compressed or not.

An IDX file is two zero bytes, a type byte (8 = unsigned byte), the number of dimensions, each dimension as a
big-endian 32-bit number, then the elements. Offsets in messages count uncompressed bytes.
"""

from __future__ import annotations

import gzip
import zlib
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

MAGIC_LABELS = 2049
"""First four bytes of a file of labels: unsigned bytes, one dimension."""

MAGIC_IMAGES = 2051
"""First four bytes of a file of images: unsigned bytes, three dimensions (count, rows, columns)."""

_CHUNK = 1 << 20


class DataError(ValueError):
    """Data that cannot be used; the message names the file and what is wrong with it."""


def read_bytes(path: Path, limit: int = 1 << 33) -> bytes:
    """The contents of a file, decompressed when it begins like a gzip file.

    Reads at most `limit` bytes, and of an IDX file little more than its header announces, so that a small compressed
    file cannot fill the memory. DataError names the file.
    """
    try:
        with path.open("rb") as plain:
            compressed = plain.read(2) == b"\x1f\x8b"
        chunks: list[bytes] = []
        size, announced = 0, None
        with gzip.open(path, "rb") if compressed else path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                if not chunks:
                    announced = _announced(chunk)
                size += len(chunk)
                if announced is not None and size > announced + _CHUNK:
                    raise DataError(f"{path}: holds more than the {announced} bytes that its header announces")
                if size > limit:
                    raise DataError(f"{path}: holds more than {limit} bytes")
                chunks.append(chunk)
    except (EOFError, zlib.error, gzip.BadGzipFile) as err:
        raise DataError(f"{path}: damaged gzip file: {err}") from None
    except OSError as err:
        raise DataError(f"{path}: cannot be read: {err.strerror or err}") from None
    return b"".join(chunks)


def _announced(head: bytes) -> int | None:
    """The size in bytes that the header of an IDX file of unsigned bytes announces; None without such a header."""
    if len(head) < 4 or head[:3] != b"\0\0\x08" or len(head) < 4 + 4 * head[3]:
        return None
    return 4 + 4 * head[3] + prod(int.from_bytes(head[4 + 4 * i : 8 + 4 * i], "big") for i in range(head[3]))


def _parse(data: bytes, where: str, magic: int, what: str) -> NDArray[np.uint8]:
    dimensions = magic & 0xFF
    header = 4 + 4 * dimensions
    if len(data) < 4:
        raise DataError(f"{where}: offset 0: expected a magic number of 4 bytes, found {len(data)} bytes in all")
    found = int.from_bytes(data[:4], "big")
    if found != magic:
        hint = {MAGIC_LABELS: " (a file of labels)", MAGIC_IMAGES: " (a file of images)"}.get(found, "")
        raise DataError(f"{where}: offset 0: expected magic number {magic} ({what}), found {found}{hint}")
    if len(data) < header:
        raise DataError(f"{where}: offset 4: expected a header of {header} bytes, found {len(data)} bytes in all")
    shape = tuple(int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(dimensions))
    for i, extent in enumerate(shape):
        if extent == 0:
            raise DataError(f"{where}: offset {4 + 4 * i}: expected a dimension of at least 1, found 0")
    expected, size = prod(shape), len(data) - header
    if size != expected:
        text = " x ".join(map(str, shape))
        problem = "the file is truncated" if size < expected else f"{size - expected} bytes too many at the end"
        at = len(data) if size < expected else header + expected
        raise DataError(f"{where}: offset {at}: expected {expected} bytes of data ({text}), found {size}: {problem}")
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


def parse_images(data: bytes, where: str) -> NDArray[np.uint8]:
    """Images of an IDX file's bytes as [count, rows, columns]; `where` names the file in a DataError."""
    return _parse(data, where, MAGIC_IMAGES, "images")


def parse_labels(data: bytes, where: str, classes: int = 10) -> NDArray[np.uint8]:
    """Labels of an IDX file's bytes as [count], each below `classes`; `where` names the file in a DataError."""
    labels = _parse(data, where, MAGIC_LABELS, "labels")
    wrong = np.flatnonzero(labels >= classes)
    if wrong.size:
        first = int(wrong[0])
        raise DataError(
            f"{where}: offset {8 + first}: expected a label below {classes}, found {labels[first]} (label {first})"
        )
    return labels


def read_images(path: Path) -> NDArray[np.uint8]:
    """Images of a file as [count, rows, columns]."""
    return parse_images(read_bytes(path), str(path))


def read_labels(path: Path, classes: int = 10) -> NDArray[np.uint8]:
    """Labels of a file as [count], each below `classes`."""
    return parse_labels(read_bytes(path), str(path), classes)


def check_pair(images: NDArray[np.uint8], labels: NDArray[np.uint8], images_name: str, labels_name: str) -> None:
    """Raise DataError unless there is one label an image."""
    if len(images) != len(labels):
        raise DataError(
            f"{labels_name}: offset 4: expected {len(images)} labels, one for each image of {images_name}, "
            f"found {len(labels)}"
        )


def write_idx(array: NDArray[np.uint8]) -> bytes:
    """The IDX file of an array of unsigned bytes."""
    head = bytes([0, 0, 8, array.ndim]) + b"".join(int(n).to_bytes(4, "big") for n in array.shape)
    return head + np.ascontiguousarray(array).tobytes()
