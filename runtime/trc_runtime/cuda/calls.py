"""The six calls of a generated driver, their arguments, and what one run of the driver leaves behind.

A bundle's `driver.py` imports nothing else. Each of its functions is one captured definition: straight code that
announces a node of the plan with `c.node(...)` and then makes that node's calls. `Recorder` runs such a function once
and keeps the calls by node; the graph builder (`graph.py`), the per-kernel mode (`stepwise.py`) and the null driver
(`null.py`) all work from these records, so what is checked is what runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Protocol, cast

from trc_runtime.schema.bundle import BundleError

# ---------------------------------------------------------------- arguments


@dataclass(frozen=True, slots=True)
class P:
    """A pointer into the arena, `offset` bytes from its beginning."""

    offset: int


@dataclass(frozen=True, slots=True)
class S:
    """A pointer into the node's own scratch memory, whose size `c.node(..., scratch=bytes)` asks for.

    What it holds before the node is unknown, and it is gone after the node; launches of one node see each other's.
    """

    offset: int = 0


@dataclass(frozen=True, slots=True)
class I:  # noqa: E742 - one letter each, so that a driver's lines stay short
    """A 64-bit signed integer (`long long` or `int64_t` in the kernel)."""

    value: int


@dataclass(frozen=True, slots=True)
class N:
    """A 32-bit signed integer (`int`)."""

    value: int


@dataclass(frozen=True, slots=True)
class F:
    """A 32-bit floating-point number (`float`)."""

    value: float


@dataclass(frozen=True, slots=True)
class D:
    """A 64-bit floating-point number (`double`)."""

    value: float


Arg = P | S | I | N | F | D
Dim3 = tuple[int, int, int]

# ---------------------------------------------------------------- places of a copy


@dataclass(frozen=True, slots=True)
class Arena:
    """Bytes of the arena that begin at `offset`."""

    offset: int


@dataclass(frozen=True, slots=True)
class Host:
    """Pinned staging memory: `buffer` "A" or "B", `part` "label", "data" or "bytes" (staging.py). Only a source."""

    buffer: str
    part: str


@dataclass(frozen=True, slots=True)
class Ring:
    """A slot of the pinned ring through which metrics reach the host; `slot` counts in bytes. Only a destination."""

    slot: int


Place = Arena | Host | Ring

# ---------------------------------------------------------------- the calls


class Calls(Protocol):
    """What a captured definition does. Each call belongs to the node announced last; a node's calls run in order."""

    def node(self, index: int, kind: str, layer: str | None, scratch: int = 0) -> None:
        """The calls that follow are those of `plan.nodes[index]`; it needs `scratch` bytes of scratch memory."""
        ...

    def kernel(self, name: str, grid: Dim3, block: Dim3, shared: int, args: tuple[Arg, ...]) -> None:
        """Launch a kernel of kernels.cu; `shared` is its dynamic shared memory in bytes."""
        ...

    def cudnn(self, key: str, bindings: Mapping[str, int | S]) -> None:
        """Run the cuDNN graph CUDNN[key]; `bindings` are arena offsets by role, or places in the node's scratch memory.

        A role "workspace" places its workspace in the arena (at least as large as the plan of the graph asks for);
        without one the workspace comes from the scratch memory, behind the bytes that the node asked for.
        """
        ...

    def copy(self, dst: Place, src: Place, nbytes: int) -> None:
        """Copy bytes."""
        ...

    def clear(self, offset: int, nbytes: int) -> None:
        """Zero bytes of the arena."""
        ...

    def collective(self, op: str, offset: int, count: int, dtype: str) -> None:
        """An operation over all ranks on `count` elements of the arena, in place."""
        ...

    def embed(self, name: str) -> None:
        """Everything of another captured definition, by the name of its function."""
        ...


# ---------------------------------------------------------------- records


@dataclass(frozen=True, slots=True)
class KernelCall:
    """`Calls.kernel`."""

    name: str
    grid: Dim3
    block: Dim3
    shared: int
    args: tuple[Arg, ...]


@dataclass(frozen=True, slots=True)
class CudnnCall:
    """`Calls.cudnn`."""

    key: str
    bindings: Mapping[str, int | S]


@dataclass(frozen=True, slots=True)
class CopyCall:
    """`Calls.copy`."""

    dst: Place
    src: Place
    nbytes: int


@dataclass(frozen=True, slots=True)
class ClearCall:
    """`Calls.clear`."""

    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """`Calls.collective`."""

    op: str
    offset: int
    count: int
    dtype: str


Call = KernelCall | CudnnCall | CopyCall | ClearCall | CollectiveCall


@dataclass(slots=True)
class NodeCalls:
    """The calls of one node of the plan, in order."""

    index: int
    kind: str
    layer: str | None
    scratch: int
    calls: list[Call] = field(default_factory=list[Call])

    def __str__(self) -> str:
        return f"node {self.index} ({self.kind}" + (f" of layer '{self.layer}')" if self.layer else ")")


@dataclass(frozen=True)
class Definition:
    """One captured definition: a bucket of a computation in a shape, as calls by node."""

    name: str
    nodes: Mapping[int, NodeCalls]


def well_formed(call: Call) -> bool:
    """Whether a call's arguments are of the right types and can be passed on; not whether they fit the plan."""
    if isinstance(call, KernelCall):
        sides = cast("list[Any]", [call.grid, call.block])
        shape = all(isinstance(s, tuple) and len(cast("tuple[object, ...]", s)) == 3 for s in sides)
        return (
            isinstance(cast(object, call.name), str)
            and shape
            and all(_whole(n, 1) for side in sides for n in side)
            and _whole(call.shared)
            and isinstance(cast(object, call.args), tuple)
            and all(map(_passable, call.args))
        )
    if isinstance(call, CudnnCall):
        bindings = cast(object, call.bindings)
        return isinstance(bindings, Mapping) and all(
            _whole(place.offset if isinstance(place, S) else place)
            for place in cast("Mapping[object, object]", bindings).values()
        )
    if isinstance(call, CopyCall):
        return _placed(call.dst) and _placed(call.src) and _whole(call.nbytes, 1)
    if isinstance(call, ClearCall):
        return _whole(call.offset) and _whole(call.nbytes, 1)
    return _whole(call.offset) and _whole(call.count, 1)


def _whole(value: object, least: int = 0) -> bool:
    return isinstance(value, int) and least <= value < 1 << 63


def _passable(arg: object) -> bool:
    """Whether an argument fits the bytes that a kernel reads."""
    if isinstance(arg, P | S):
        return _whole(arg.offset)
    if isinstance(arg, I | N):
        bits = 63 if isinstance(arg, I) else 31
        return isinstance(cast(object, arg.value), int) and -(1 << bits) <= arg.value < 1 << bits
    if isinstance(arg, F | D):
        if not isinstance(cast(object, arg.value), int | float):
            return False
        return isinstance(arg, D) or not isfinite(arg.value) or abs(arg.value) < _FLOAT_LIMIT
    return False


def _placed(place: object) -> bool:
    if isinstance(place, Arena):
        return _whole(place.offset)
    return isinstance(place, Host) or (isinstance(place, Ring) and _whole(place.slot))


_FLOAT_LIMIT = 3.4028235e38
"""What a 32-bit floating-point number can hold."""


class DriverError(BundleError):
    """A generated driver that does not fit its plan, or its bundle."""


CaptureFunction = Callable[[Calls], None]


class Recorder:
    """Keeps what a captured definition calls."""

    def __init__(self, functions: Mapping[str, CaptureFunction] | None = None) -> None:
        self._functions = functions or {}
        self._nodes: dict[int, NodeCalls] = {}
        self._current: NodeCalls | None = None

    def node(self, index: int, kind: str, layer: str | None, scratch: int = 0) -> None:
        """Begin a node; DriverError if it was begun before."""
        if not (_whole(index) and _whole(scratch)):
            raise DriverError(f"node {index!r} with {scratch!r} bytes of scratch memory")
        if index in self._nodes:
            raise DriverError(f"node {index} ({kind}) is announced twice")
        self._current = self._nodes[index] = NodeCalls(index, kind, layer, scratch)

    def _append(self, call: Call) -> None:
        if self._current is None:
            raise DriverError(f"a call stands before the first node: {call}")
        if not well_formed(call):
            raise DriverError(f"{self._current}: {call}: not what such a call takes")
        self._current.calls.append(call)

    def kernel(self, name: str, grid: Dim3, block: Dim3, shared: int, args: tuple[Arg, ...]) -> None:
        """Keep a launch."""
        self._append(KernelCall(name, grid, block, shared, args))

    def cudnn(self, key: str, bindings: Mapping[str, int | S]) -> None:
        """Keep the execution of a cuDNN graph."""
        self._append(CudnnCall(key, bindings))

    def copy(self, dst: Place, src: Place, nbytes: int) -> None:
        """Keep a copy."""
        self._append(CopyCall(dst, src, nbytes))

    def clear(self, offset: int, nbytes: int) -> None:
        """Keep a fill with zeros."""
        self._append(ClearCall(offset, nbytes))

    def collective(self, op: str, offset: int, count: int, dtype: str) -> None:
        """Keep an operation over all ranks."""
        self._append(CollectiveCall(op, offset, count, dtype))

    def embed(self, name: str) -> None:
        """Record another definition's nodes here."""
        if (function := self._functions.get(name)) is None:
            raise DriverError(f"the driver embeds '{name}', which is none of its definitions")
        function(self)

    def definition(self, name: str) -> Definition:
        """What has been recorded."""
        return Definition(name, self._nodes)


def record(function: CaptureFunction, functions: Mapping[str, CaptureFunction] | None = None) -> Definition:
    """Run a captured definition once and return its calls."""
    recorder = Recorder(functions)
    function(recorder)
    return recorder.definition(getattr(function, "__name__", "definition"))
