"""Calls with their addresses: what graph nodes and launches are made of."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from trc_runtime.cuda._cuda import Function, Graph
from trc_runtime.cuda.calls import (
    Arena,
    Arg,
    Call,
    ClearCall,
    CopyCall,
    CudnnCall,
    D,
    Definition,
    Dim3,
    DriverError,
    F,
    Host,
    I,
    KernelCall,
    N,
    NodeCalls,
    P,
    Place,
    S,
)
from trc_runtime.cuda.dnn import Planned
from trc_runtime.cuda.errors import ANEW
from trc_runtime.schema.bundle import DRIVER
from trc_runtime.schema.regions import SLOT_ALIGNMENT, align_up


class Packed:
    """Kernel arguments in memory: `address` is that of an array of pointers to them."""

    def __init__(self, values: bytes, count: int) -> None:
        self._values = ctypes.create_string_buffer(values, max(len(values), 8))
        base = ctypes.addressof(self._values)
        self._pointers = (ctypes.c_uint64 * max(count, 1))(*(base + 8 * i for i in range(count)))
        self.address = ctypes.addressof(self._pointers)


@dataclass
class Launch:
    """A kernel launch."""

    name: str
    function: Function
    grid: Dim3
    block: Dim3
    shared: int
    params: Packed


@dataclass
class Dnn:
    """An execution of a cuDNN graph; `graph` holds it once it has been captured."""

    planned: Planned
    addresses: Mapping[str, int]
    workspace: int
    graph: Graph | None = field(default=None)


@dataclass
class Copy:
    """A copy; `way` is "device", "to_device" or "to_host". `buffer` names the input buffer it reads, if it does."""

    target: int
    source: int
    size: int
    way: str
    buffer: str | None = None


@dataclass
class Zero:
    """A fill with zeros."""

    address: int
    size: int


Op = Launch | Dnn | Copy | Zero
Linked = Mapping[int, list[Op]]
"""Operations by node."""


@dataclass(frozen=True)
class Linker:
    """Everything that calls refer to, by address. `staging` is keyed by (buffer, part), `scratch_of` by node."""

    arena: int
    arena_size: int
    scratch: int
    scratch_of: Mapping[int, int]
    functions: Mapping[str, Function]
    plans: Mapping[str, Planned]
    staging: Mapping[tuple[str, str], int]

    def link(self, definition: Definition, path: str = DRIVER) -> Linked:
        """A definition's operations. DriverError, which names the `path`, for a name or place that does not exist."""
        try:
            return {i: [self._op(node, c) for c in node.calls] for i, node in definition.nodes.items()}
        except DriverError as err:
            raise DriverError(f"{path}: {err}") from None

    def _op(self, node: NodeCalls, call: Call) -> Op:
        if isinstance(call, KernelCall):
            function = self.functions.get(call.name)
            if function is None:
                raise DriverError(f"{node}: there is no kernel {call.name}; {ANEW}")
            values = b"".join(self._argument(node, a) for a in call.args)
            return Launch(call.name, function, call.grid, call.block, call.shared, Packed(values, len(call.args)))
        if isinstance(call, CudnnCall):
            return self._dnn(node, call)
        if isinstance(call, CopyCall):
            return self._copy(node, call)
        if isinstance(call, ClearCall):
            return Zero(self._at(node, call.offset, call.nbytes), call.nbytes)
        raise DriverError(f"{node}: the collective {call.op} needs several ranks, which this runtime does not have yet")

    def _at(self, node: NodeCalls, offset: int, size: int = 1) -> int:
        if not 0 <= offset <= max(self.arena_size, 1) - size:
            raise DriverError(f"{node}: offset {offset} lies outside the arena of {self.arena_size} bytes; {ANEW}")
        return self.arena + offset

    def _scratch(self, node: NodeCalls, offset: int) -> int:
        return self.scratch + self.scratch_of.get(node.index, 0) + offset

    def _argument(self, node: NodeCalls, arg: Arg) -> bytes:
        """Eight bytes a value; the kernel reads as many of them as its parameter has."""
        if isinstance(arg, P):
            return struct.pack("<Q", self._at(node, arg.offset))
        if isinstance(arg, S):
            return struct.pack("<Q", self._scratch(node, arg.offset))
        if isinstance(arg, I):
            return struct.pack("<q", arg.value)
        if isinstance(arg, N):
            return struct.pack("<i4x", arg.value)
        if isinstance(arg, F):
            return struct.pack("<f4x", arg.value)
        assert isinstance(arg, D)
        return struct.pack("<d", arg.value)

    def _dnn(self, node: NodeCalls, call: CudnnCall) -> Dnn:
        planned = self.plans.get(call.key)
        if planned is None:
            raise DriverError(f"{node}: there is no cuDNN graph {call.key}")
        roles, tensors = set(call.bindings) - {"workspace"}, set(planned.description["tensors"])
        if roles != tensors:
            raise DriverError(
                f"{node}: binds {', '.join(sorted(roles))} to the cuDNN graph {call.key}, which has "
                f"{', '.join(sorted(tensors))}; {ANEW}"
            )
        places = {
            role: self._scratch(node, place.offset) if isinstance(place, S) else self._at(node, place)
            for role, place in call.bindings.items()
        }
        behind = self._scratch(node, align_up(node.scratch, SLOT_ALIGNMENT))
        return Dnn(planned, places, places.pop("workspace", behind))

    def _copy(self, node: NodeCalls, call: CopyCall) -> Copy:
        source, buffer = self._source(node, call.src, call.nbytes)
        if not isinstance(call.dst, Arena):
            raise DriverError(f"{node}: copies to {call.dst}; metrics are copied by the session itself")
        target = self._at(node, call.dst.offset, call.nbytes)
        return Copy(target, source, call.nbytes, "device" if buffer is None else "to_device", buffer)

    def _source(self, node: NodeCalls, place: Place, size: int) -> tuple[int, str | None]:
        if isinstance(place, Arena):
            return self._at(node, place.offset, size), None
        if isinstance(place, Host):
            address = self.staging.get((place.buffer, place.part))
            if address is None:
                raise DriverError(f"{node}: there is no staged input {place.buffer} {place.part}")
            return address, place.buffer
        raise DriverError(f"{node}: copies from {place}, which is only written")
