"""Filling a frame with a block of images: zeros around them, conversion from storage, the prologue."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import DTypeLike

from trc_runtime.cpu.bind import Array, BoundNode
from trc_runtime.cpu.conv.geometry import Frame
from trc_runtime.cpu.half import compute_type, load, round_to

ACTIVATIONS = ("none", "relu", "relu6")
"""What a prologue may apply, by the name of the parameter `act`."""


@dataclass(frozen=True)
class Prologue:
    """The input is act(x * scale + shift); scale and shift are stored as x is, one number a channel."""

    scale: Array
    shift: Array
    act: str

    def apply(self, values: Array, scale: Array, shift: Array) -> None:
        """Normalise and activate in place, each step rounded to the type of `values`; NaN stays."""
        np.multiply(values, scale, out=values)
        np.add(values, shift, out=values)
        if self.act != "none":
            np.maximum(values, 0, out=values)
        if self.act == "relu6":
            np.minimum(values, 6, out=values)


def prologue(node: BoundNode) -> Prologue:
    """The prologue of a node with the operands scale and shift. ValueError for an unknown activation."""
    act = node.text("act")
    if act not in ACTIVATIONS:
        raise node.problem(f"knows the activations {', '.join(ACTIVATIONS)}, not '{act}'")
    return Prologue(node.flat("scale"), node.flat("shift"), act)


SLACK = 64
"""Elements after a frame that compiled code may read (and not use)."""


def frame_memory(node: BoundNode, shape: tuple[int, ...], kind: DTypeLike) -> Array:
    """Scratch for a frame, with SLACK elements after it."""
    size = prod(shape)
    return node.scratch((size + SLACK,), kind)[:size].reshape(shape)


class Filler:
    """Brings blocks of up to `images` images of an array into a frame, one thread's own memory.

    `buffer` is (images, frame height, frame width, channels) in the compute type. Call `begin` first in every run
    of the node (scratch memory belongs to all nodes), then `fill` block by block.
    """

    def __init__(
        self, node: BoundNode, array: Array, frame: Frame, images: int, before: Prologue | None = None
    ) -> None:
        height, width, channels = array.shape[1:]
        self._array = array
        self._before = before
        self._rows, self._columns = frame.inside(height, width)
        kind = compute_type(array.dtype)
        self.buffer = frame_memory(node, (images, frame.height, frame.width, channels), kind)
        rows = slice(self._rows.start - frame.top, self._rows.stop - frame.top)
        columns = slice(self._columns.start - frame.left, self._columns.stop - frame.left)
        inner = self.buffer[:, rows, columns]
        self._inner = inner if self._rows.start < self._rows.stop and self._columns.start < self._columns.stop else None
        self._bordered = self._inner is None or inner.shape != self.buffer.shape
        if before is not None:
            self._scale, self._shift = node.scratch((channels,), kind), node.scratch((channels,), kind)
        rounds = before is not None and array.dtype == np.float16 and self._inner is not None
        self._spare = node.scratch(inner.shape, np.float16) if rounds else None

    def begin(self) -> None:
        """Zero the frame's border and fetch the prologue's numbers."""
        if self._bordered:
            self.buffer.fill(0)
        if self._before is not None:
            load(self._before.scale, self._scale)
            load(self._before.shift, self._shift)

    def fill(self, start: int, stop: int) -> None:
        """Bring the images from start to stop, to the front of the buffer."""
        if self._inner is None:
            return
        inner = self._inner[: stop - start]
        load(self._array[start:stop, self._rows, self._columns], inner)
        if self._before is not None:
            self._before.apply(inner, self._scale, self._shift)
            spare = None if self._spare is None else self._spare[: stop - start]
            round_to(inner, self._array.dtype, spare)


def is_plain(array: Array, frame: Frame, before: Prologue | None) -> bool:
    """Whether the frame is the array itself (or its upper left part): then nothing need be copied."""
    height, width = array.shape[1:3]
    fits = frame.top == 0 and frame.left == 0 and frame.height <= height and frame.width <= width
    return fits and before is None and compute_type(array.dtype) == array.dtype
