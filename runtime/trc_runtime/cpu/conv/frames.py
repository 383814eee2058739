"""Memory as compiled code sees it: addresses, tables of offsets, and frames that it fills or finds in place."""

from __future__ import annotations

from functools import cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from trc_runtime.cpu.bind import Array, BoundNode
from trc_runtime.cpu.conv.build import library
from trc_runtime.cpu.conv.gemm import Input
from trc_runtime.cpu.conv.source import ACTIVATIONS, Filler, frame_memory, is_plain

F32 = np.dtype(np.float32)


@cache
def wide() -> int:
    """Channels of a panel of weights."""
    return int(library().trc_wide())


def address_of(array: Array) -> int:
    """Where an array's first element lies; the caller keeps the array alive."""
    return array.ctypes.data


def strides_of(array: Array) -> list[int]:
    """Strides in elements; the last dimension must be dense."""
    if array.shape[-1] > 1 and array.strides[-1] != array.itemsize:
        raise ValueError(f"channels do not lie side by side (strides {array.strides})")
    return [s // array.itemsize for s in array.strides]


class Table:
    """Numbers that compiled code reads."""

    def __init__(self, numbers: NDArray[np.int64]) -> None:
        self.numbers = np.ascontiguousarray(numbers, np.int64).reshape(-1)
        self.address = address_of(self.numbers)


def offsets(images: int, counts: tuple[int, int], strides: tuple[int, int, int], first: int) -> Table:
    """Where windows or results begin: first + the strides of image, row and pixel times their numbers."""
    n, i, j = np.ogrid[:images, : counts[0], : counts[1]]
    return Table(first + n * strides[0] + i * strides[1] + j * strides[2])


def lies_ready(source: Input, groups: int) -> bool:
    """Whether windows can be read where the array lies: a window's row must be one piece of memory."""
    side_by_side = groups == 1 and strides_of(source.array)[2] == source.array.shape[3]
    narrow = all(job.window[1] <= 1 for job in source.sliding.jobs)
    return (side_by_side or narrow) and is_plain(source.array, source.sliding.frame, source.before)


class Frames:
    """Brings a block of images of one group into a frame of one's own, or finds it where it lies."""

    def __init__(self, node: BoundNode, source: Input, groups: int, images: int, plain: bool) -> None:
        array, frame, before = source.array, source.sliding.frame, source.before
        self.channels = array.shape[3] // groups
        self._source = source  # keeps alive what addresses point to
        self._plain = plain
        self._filler: Filler | None = None
        self._scale = self._shift = 0
        self._act = 0
        self._first = address_of(array)
        n, h, w, _ = strides_of(array)
        self._image = n
        if plain:
            self.strides = (n, h, w)
            return
        size = (images, frame.height, frame.width, self.channels)
        self.strides = (prod(size[1:]), prod(size[2:]), size[3])
        if array.dtype != F32:
            self._filler = Filler(node, array, frame, images, before)
            self.buffer = self._filler.buffer
            self.address = address_of(self.buffer)
            return
        self.buffer = frame_memory(node, size, F32)
        self.address = address_of(self.buffer)
        numbers = [array.shape[1], array.shape[2], self.channels, *size[1:3], frame.top, frame.left, n, h, w]
        self._size = Table(np.array(numbers, np.int64))
        if before is not None:
            self._scale, self._shift = address_of(before.scale), address_of(before.shift)
            self._act = ACTIVATIONS.index(before.act)

    def begin(self) -> None:
        """Call first in every run of the node, once a thread."""
        if self._filler is not None:
            self._filler.begin()

    def fill(self, start: int, stop: int, group: int, image: int = 0) -> int:
        """The address of the frame of images start to stop; they come to lie at the given image of the buffer."""
        channel = 4 * group * self.channels
        first = self._first + 4 * start * self._image + channel
        if self._plain:
            return first
        address = self.address + 4 * image * self.strides[0]
        if self._filler is not None:
            self._filler.fill(start, stop)
        else:
            scale = self._scale + channel if self._scale else 0
            shift = self._shift + channel if self._scale else 0
            library().trc_fill(first, address, self._size.address, scale, shift, self._act, stop - start)
        return address
