"""Tensors on the host: between their bytes on the device and arrays that users see, and staged input.

Uses the CPU target's conversions and initial values, so that both targets begin with the same bytes.
"""

from __future__ import annotations

from difflib import get_close_matches
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trc_runtime.cpu import initial
from trc_runtime.cpu.bind import visible_shape
from trc_runtime.cpu.half import narrowed, widened
from trc_runtime.rng import Philox
from trc_runtime.schema.plan import Plan, Tensor
from trc_runtime.schema.regions import align_up, channel_alignment, padded_elements

Array = NDArray[Any]

SEED = "seed"
"""The tensor that holds the seed of the run, low word first."""


def first_shape(tensor: Tensor) -> tuple[int, ...]:
    """The shape in the first variant that has the tensor; ValueError where none does."""
    shape = next((s for s in tensor.shapes if s is not None), None)
    if shape is None:
        raise ValueError(f"tensor '{tensor.name}' exists in no variant")
    return shape


def stored_bytes(tensor: Tensor, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor of that shape in memory, channel padding included."""
    return padded_elements(shape or (1,), tensor.dtype, tensor.region) * tensor.dtype.itemsize


def view(tensor: Tensor, shape: tuple[int, ...], memory: NDArray[np.uint8]) -> Array:
    """The bytes of a tensor as an array of its storage type that shows its real channels."""
    channels = shape[-1] if shape else 1
    padded = align_up(channels, channel_alignment(tensor.region, tensor.dtype))
    full = memory[: stored_bytes(tensor, shape)].view(tensor.dtype.numpy).reshape(*shape[:-1], padded)
    return full[..., : visible_shape(tensor, shape)[-1]]


def decode(tensor: Tensor, memory: NDArray[np.uint8]) -> Array:
    """A copy of a tensor's values in the shape of its first variant, halves as float32."""
    return widened(view(tensor, first_shape(tensor), memory))


def encode(tensor: Tensor, array: ArrayLike) -> NDArray[np.uint8]:
    """The bytes of a tensor with the given values; what is padding holds zeros.

    Floating-point types convert into each other (to half types through float32), everything else must convert exactly.
    ValueError names the tensor and what does not fit.
    """
    memory = np.zeros(stored_bytes(tensor, first_shape(tensor)), np.uint8)
    target = view(tensor, first_shape(tensor), memory)
    given: Array = np.asarray(array)
    if given.shape != target.shape:
        raise ValueError(f"tensor '{tensor.name}' has the shape {target.shape}, the given array {given.shape}")
    if given.dtype.kind not in "fiu":
        raise ValueError(f"tensor '{tensor.name}' is of type {tensor.dtype.value}, the given array of {given.dtype}")
    with np.errstate(all="ignore"):
        converted = narrowed(given, target.dtype) if tensor.dtype.is_half else given.astype(target.dtype)
        if not (tensor.dtype.is_float and given.dtype.kind == "f") and not _same(widened(converted), given):
            raise ValueError(
                f"tensor '{tensor.name}' is of type {tensor.dtype.value}: the given {given.dtype} values do not fit it "
                "exactly"
            )
    target[...] = converted
    return memory


def _same(converted: Array, given: Array) -> bool:
    return bool(np.all(converted == given)) and bool(np.all((converted < 0) == (given < 0)))


def first_values(tensor: Tensor, seed: int, generator: Philox) -> NDArray[np.uint8] | None:
    """The bytes of a tensor before the first step; None for zeros."""
    if tensor.name == SEED:
        return encode_seed(tensor, seed)
    if tensor.initial.rule in ("zeros", "table"):
        return None
    memory = np.zeros(stored_bytes(tensor, first_shape(tensor)), np.uint8)
    initial.fill(tensor, view(tensor, first_shape(tensor), memory), seed, generator)
    return memory


def encode_seed(tensor: Tensor, seed: int) -> NDArray[np.uint8]:
    """The seed as two words, the low one first."""
    words = np.array([seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF], np.uint32)
    memory = np.zeros(stored_bytes(tensor, first_shape(tensor)), np.uint8)
    memory[: words.nbytes] = words.view(np.uint8)
    return memory


def find(plan: Plan, by_name: dict[str, Tensor], name: str) -> Tensor:
    """A tensor by name; ValueError with near names where there is none."""
    if name not in by_name:
        close = get_close_matches(name, by_name, 3)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise ValueError(f"the plan '{plan.name}' has no tensor '{name}'{hint}")
    return by_name[name]


class Waited(Protocol):
    """A launch that can be waited for."""

    def settle(self) -> None:
        """Return when it is over; raises what went wrong."""
        ...


class StagedInput:
    """One input buffer on the host: pinned memory as the device stores it, and arrays for the caller to fill.

    Where the device takes images as the caller sees them (unsigned bytes that it normalises, or float32 without added
    channels) the arrays are the pinned memory itself. Elsewhere images are float32 in ordinary memory, and `pack`
    rounds them into the pinned memory.
    """

    def __init__(self, label: Tensor, data: Tensor, labels: NDArray[np.uint8], images: NDArray[np.uint8]) -> None:
        self._label, self._data = label, data
        self._labels, self._pinned = labels, images
        self.dirty: int | None = None
        """The column whose images wait for `pack`."""
        self.reading: Waited | None = None
        """The last launch that copies from here."""
        shapes = [(s, visible_shape(data, s)) for s in data.shapes if s is not None]
        dense = all(stored_bytes(data, s) == prod(v) * data.dtype.itemsize for s, v in shapes)
        direct = dense and not data.dtype.is_half
        self._loose = None if direct else np.zeros(max(prod(v) for _, v in shapes), np.float32)

    def arrays(self, column: int) -> tuple[Array, Array]:
        """Labels [n] and images [n, h, w, c] of a column, which will be packed before they are copied."""
        label, data = self._label.shapes[column], self._data.shapes[column]
        if label is None or data is None:
            raise ValueError(f"column {column} has no input")
        labels = view(self._label, label, self._labels).reshape(-1)
        if self._loose is None:
            return labels, view(self._data, data, self._pinned)
        self.dirty = column
        shape = visible_shape(self._data, data)
        return labels, self._loose[: prod(shape)].reshape(shape)

    def pack(self) -> None:
        """Round what was filled in last into the pinned memory; does nothing the second time."""
        if self.dirty is None or self._loose is None:
            return
        shape = self._data.shapes[self.dirty]
        assert shape is not None
        seen = visible_shape(self._data, shape)
        target, source = view(self._data, shape, self._pinned), self._loose[: prod(seen)].reshape(seen)
        with np.errstate(all="ignore"):
            for target_image, image in zip(target, source, strict=True):  # one at a time stays in the cache
                target_image[...] = narrowed(image, target.dtype)
        self.dirty = None  # not earlier: Ctrl-C may have come between
