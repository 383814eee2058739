"""Views of tensors and ranges in an arena, and a node bound to them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from trc_runtime.schema.kinds import Access
from trc_runtime.schema.plan import Node, Operand, Plan, RangeRef, Tensor, TensorRef
from trc_runtime.schema.regions import (
    SLOT_ALIGNMENT,
    Region,
    align_up,
    channel_alignment,
    dtype_of,
    padded_elements,
    region_range,
)
from trc_runtime.schema.staging import staged_parts

Array = NDArray[Any]
"""An array whose element type follows from the plan's precision."""


class Scratch:
    """Temporary memory that all nodes of a session share, since they run one after another.

    A node's pieces are cut one after another from the current block. Where one does not fit, a block at least
    twice as large takes its place (what was cut before stays valid), so all blocks together are a small multiple
    of the largest need.
    """

    def __init__(self) -> None:
        self._block = _aligned(1 << 16)

    def cut(self, start: int, shape: tuple[int, ...], dtype: DTypeLike) -> tuple[Array, int]:
        """A piece that begins `start` bytes into the block, and where the next one may begin."""
        kind = np.dtype(dtype)
        size = prod(shape) * kind.itemsize
        if start + size > self._block.size:
            self._block = _aligned(max(2 * self._block.size, size))
            start = 0
        piece = self._block[start : start + size].view(kind).reshape(shape)
        return piece, align_up(start + size, SLOT_ALIGNMENT)


def _aligned(size: int) -> NDArray[np.uint8]:
    memory = np.empty(size + SLOT_ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % SLOT_ALIGNMENT
    return memory[start : start + size]


@dataclass(frozen=True)
class Staging:
    """Host memory from which `h2d_copy` reads one buffer's input.

    Images have their real channels only; where they are stored in half precision they are float32 here, and where the
    plan normalises them unsigned bytes.
    """

    labels: Array
    images: Array


class Memory:
    """The arena of a session with everything that finds its way in it.

    `staging` maps a buffer's name ("A", "B") to the host memory of one column; a session sets it.
    """

    def __init__(self, plan: Plan, arena: NDArray[np.uint8]) -> None:
        self.plan = plan
        self.arena = arena
        self.scratch = Scratch()
        self.by_name = {t.name: n for n, t in enumerate(plan.tensors)}
        self._spans = {s.name: s for s in plan.spans}
        self._in_region: dict[Region, list[Tensor]] = {}
        for tensor in plan.tensors:
            self._in_region.setdefault(tensor.region, []).append(tensor)
        self._staging: dict[str, tuple[NDArray[np.uint8], NDArray[np.uint8]]] = {}
        self._parts: dict[str, list[Tensor]] = {}

    def tensor(self, name: str) -> Tensor:
        """The tensor of that name; ValueError if there is none."""
        index = self.by_name.get(name)
        if index is None:
            raise ValueError(f"the plan '{self.plan.name}' has no tensor '{name}'")
        return self.plan.tensors[index]

    def view(self, tensor: Tensor, shape: tuple[int, ...]) -> Array:
        """The tensor's memory as an array of its logical shape; padded channels are skipped."""
        channels = shape[-1] if shape else 1
        padded = align_up(channels, channel_alignment(tensor.region, tensor.dtype))
        size = padded_elements(shape or (1,), tensor.dtype, tensor.region) * tensor.dtype.itemsize
        if size > tensor.slot or tensor.offset + size > self.arena.size:
            raise ValueError(f"tensor '{tensor.name}' of shape {shape} does not fit its slot of {tensor.slot} bytes")
        memory = self.arena[tensor.offset : tensor.offset + size].view(tensor.dtype.numpy)
        full = memory.reshape(*shape[:-1], padded)
        return full if padded == channels else full[..., :channels]

    def range_tensors(self, ref: RangeRef) -> list[Tensor]:
        """The tensors of the regions of a range, in the order of their addresses."""
        found = [t for r in region_range(ref.first, ref.last) for t in self._in_region.get(r, [])]
        return sorted(found, key=lambda t: t.offset)

    def range_bytes(self, ref: RangeRef) -> NDArray[np.uint8]:
        """All bytes of a range of regions. ValueError if the regions do not lie side by side."""
        spans = [self._spans[r.name] for r in region_range(ref.first, ref.last) if r.name in self._spans]
        spans = sorted((s for s in spans if s.bytes), key=lambda s: s.offset)
        if not spans:
            return self.arena[:0]
        end = spans[0].offset
        for span in spans:
            if span.offset != end:
                raise ValueError(
                    f"range {ref.first.name} to {ref.last.name}: {span.name} begins at {span.offset}, "
                    f"the regions before it end at {end}"
                )
            end = span.offset + span.bytes
        return self.arena[spans[0].offset : end]

    def staging(self, buffer: str, column: int) -> Staging:
        """Host memory of a buffer in the shape of a column; the columns of a buffer share it."""
        parts = self._parts.get(buffer)
        if parts is None:
            parts = self._parts[buffer] = [*staged_parts({t.name: t for t in self.plan.tensors}, buffer).values()]
        if not parts:
            raise ValueError(f"the plan '{self.plan.name}' has no input buffer {buffer}")
        kinds = [t.dtype.numpy if not t.dtype.is_half else _F32 for t in parts]
        if buffer not in self._staging:
            # a slot has room for float32 too, where it is that of a half type: twice its bytes
            sizes = [t.slot * k.itemsize // t.dtype.itemsize for t, k in zip(parts, kinds, strict=True)]
            self._staging[buffer] = (_aligned(sizes[0]), _aligned(sizes[1]))
            for memory in self._staging[buffer]:
                memory.fill(0)
        views: list[Array] = []
        for tensor, kind, memory in zip(parts, kinds, self._staging[buffer], strict=True):
            shape = visible_shape(tensor, _shape_in(tensor, column, self.plan))
            count = prod(shape)
            views.append(memory[: count * kind.itemsize].view(kind).reshape(shape))
        return Staging(views[0].reshape(-1), views[1])


_F32 = np.dtype(np.float32)


def visible_shape(tensor: Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape of a tensor as users see it: its real channels only."""
    return shape if tensor.channels is None else (*shape[:-1], tensor.channels)


def _shape_in(tensor: Tensor, column: int, plan: Plan) -> tuple[int, ...]:
    shape = tensor.shapes[column]
    if shape is None:
        raise ValueError(f"tensor '{tensor.name}' does not exist in variant {plan.variants[column].name}")
    return shape


class BoundNode:
    """A node in one column: what a kernel's binder takes its arrays from.

    `node["x"]` is an operand's array in its logical shape and its storage type (bfloat16 is uint16; see `cpu.half`).
    Binders keep the arrays; the memory never moves.
    """

    def __init__(self, node: Node, column: int, memory: Memory) -> None:
        self.node = node
        self.kind = node.kind
        self.layer = node.layer
        self.params = node.params
        self.column = column
        self._memory = memory
        self._operands: dict[str, Operand] = {}
        for operand in node.operands:
            # a range that is read and updated under the same name is found by position (`ranges`)
            self._operands.setdefault(operand.name, operand)
        self._scalars = dict(node.scalars)
        self._scratch_end = 0
        self.master = memory.plan.config.precision.master.numpy
        """Type of parameters, statistics, scalars and results."""

    def __str__(self) -> str:
        return f"node {self.kind}" + (f" of layer '{self.layer}'" if self.layer else "")

    def problem(self, message: str) -> ValueError:
        """An error that names the node."""
        return ValueError(f"{self}: {message}")

    # ------------------------------------------------------------ operands

    def __contains__(self, name: str) -> bool:
        return name in self._operands

    def __getitem__(self, name: str) -> Array:
        """An operand in its logical shape; ValueError if the node has none of that name."""
        operand = self._operands.get(name)
        if operand is None:
            raise self.problem(f"lacks the operand '{name}'")
        return self._view(operand)

    def get(self, name: str) -> Array | None:
        """An optional operand, or None where it is left out."""
        return self[name] if name in self._operands else None

    def matrix(self, name: str) -> Array:
        """An operand as (all dimensions but the last, the last). ValueError where that would need a copy."""
        view = self[name]
        return self._reshaped(name, view, (prod(view.shape[:-1]), view.shape[-1]))

    def samples(self, name: str) -> Array:
        """An operand as (first dimension, all others). ValueError where that would need a copy."""
        view = self[name]
        return self._reshaped(name, view, (view.shape[0], prod(view.shape[1:])))

    def flat(self, name: str) -> Array:
        """An operand as one dimension. ValueError where that would need a copy."""
        view = self[name]
        return self._reshaped(name, view, (view.size,))

    def ranges(self, access: Access) -> list[Array]:
        """The range operands of one access in order, as flat arrays of the regions' type."""
        found: list[Array] = []
        for operand in self.node.operands:
            if operand.access is access and isinstance(operand.ref, RangeRef):
                dtype = dtype_of(operand.ref.first, self._memory.plan.config.precision)
                found.append(self._memory.range_bytes(operand.ref).view(dtype.numpy))
        return found

    def range_views(self, access: Access) -> list[tuple[Tensor, Array]]:
        """The tensors (with their arrays) of the regions of the first range operand of one access."""
        for operand in self.node.operands:
            if operand.access is access and isinstance(operand.ref, RangeRef):
                tensors = self._memory.range_tensors(operand.ref)
                return [(t, self._tensor_view(t)) for t in tensors]
        raise self.problem(f"has no range among its {access.value}")

    def staging(self, buffer: str) -> Staging:
        """The host memory of an input buffer in this column."""
        return self._memory.staging(buffer, self.column)

    def _view(self, operand: Operand) -> Array:
        if not isinstance(operand.ref, TensorRef):
            raise self.problem(f"operand '{operand.name}' is a range of regions, not a tensor")
        return self._tensor_view(self._memory.plan.tensors[operand.ref.tensor])

    def _tensor_view(self, tensor: Tensor) -> Array:
        shape = tensor.shapes[self.column]
        if shape is None:
            variant = self._memory.plan.variants[self.column].name
            raise self.problem(f"uses '{tensor.name}', which does not exist in variant {variant}")
        return self._memory.view(tensor, shape)

    def _reshaped(self, name: str, view: Array, shape: tuple[int, ...]) -> Array:
        try:
            return view.reshape(shape, copy=False)
        except ValueError:
            raise self.problem(f"operand '{name}' of shape {view.shape} is not dense in memory") from None

    # ------------------------------------------------------------ scalars, parameters, scratch

    def scalar(self, role: str) -> Array:
        """A device scalar (or table) as a one-dimensional view, to be read when the node runs."""
        index = self._scalars.get(role)
        if index is None:
            raise self.problem(f"lacks the scalar '{role}'")
        return self._tensor_view(self._memory.plan.tensors[index]).reshape(-1)

    def number(self, name: str) -> float:
        """A numeric parameter."""
        value = self.params.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.problem(f"lacks the numeric parameter '{name}'")
        return float(value)

    def text(self, name: str) -> str:
        """A textual parameter."""
        value = self.params.get(name)
        if not isinstance(value, str):
            raise self.problem(f"lacks the textual parameter '{name}'")
        return value

    def flag(self, name: str) -> bool:
        """A boolean parameter."""
        value = self.params.get(name)
        if not isinstance(value, bool):
            raise self.problem(f"lacks the boolean parameter '{name}'")
        return value

    def scratch(self, shape: tuple[int, ...], dtype: DTypeLike | None = None) -> Array:
        """Temporary memory for the node's run (the master type by default); other nodes overwrite it."""
        piece, self._scratch_end = self._memory.scratch.cut(self._scratch_end, shape, dtype or self.master)
        return piece
