"""The null driver: everything about a bundle's calls that can be known without a GPU.

`check_sources` looks at every call of every captured definition: names, numbers and types of arguments against the
kernels' signatures, limits of grids and blocks, pointers inside the operands that the plan gives their node, writing
only where the plan says so and everywhere it says so, cuDNN graphs complete and fitting their tensors. Then it proves
that no launch has a race: any two accesses to overlapping bytes, one of them a write, are ordered by the DAG. The bytes
are those of the calls, not those that the plan intends: a pointer stands for everything from it to the end of its
operand, a copy or a cuDNN tensor for its exact bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from trc_runtime.cuda.bundle import Sources
from trc_runtime.cuda.calls import (
    Arena,
    Call,
    ClearCall,
    CollectiveCall,
    CopyCall,
    CudnnCall,
    D,
    Definition,
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
from trc_runtime.cuda.dnn import outputs_of, problems_of, tensor_bytes
from trc_runtime.cuda.extents import Extent, Extents
from trc_runtime.cuda.order import Order, all_orders, place_scratch, result_tensors, scratch_sizes
from trc_runtime.cuda.signatures import Parameter
from trc_runtime.schema.dtypes import DType
from trc_runtime.schema.plan import Capture, Plan
from trc_runtime.schema.regions import align_up
from trc_runtime.schema.staging import BUFFERS, staged_parts

MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)
MAX_THREADS = 1024
MAX_SHARED = 227 << 10
"""Bytes of shared memory that a block can have on Hopper; other architectures have less or as much."""

ALIGNMENT = 256
_LIMIT = 100
"""Problems reported at most."""


@dataclass(frozen=True)
class Touch:
    """Bytes that a call touches."""

    begin: int
    end: int
    writes: bool
    what: str


@dataclass
class _Checked:
    """A definition's problems, and what each of its nodes touches (scratch memory aside)."""

    problems: list[str] = field(default_factory=list[str])
    touches: dict[int, list[Touch]] = field(default_factory=dict[int, list[Touch]])


def check_sources(sources: Sources, workspaces: Mapping[str, int] | None = None) -> list[str]:
    """Every problem of a bundle as a sentence; an empty list is the proof.

    `workspaces` are the bytes that cuDNN's plans need by key, where they are known.
    """
    pairs = zip(sources.plan.captures, sources.definitions, strict=True)
    checked = [_DefinitionCheck(sources, c, d).run() for c, d in pairs]
    problems = [p for c in checked for p in c.problems]
    if problems:
        return list(dict.fromkeys(problems))[:_LIMIT]  # races would only repeat them
    return list(dict.fromkeys(_races(sources, [c.touches for c in checked], workspaces or {})))[:_LIMIT]


class _DefinitionCheck:
    """The checks of one captured definition."""

    def __init__(self, sources: Sources, capture: Capture, definition: Definition) -> None:
        self.sources = sources
        self.plan: Plan = sources.plan
        self.capture = capture
        self.definition = definition
        self.extents = Extents(self.plan)
        self.result = _Checked()

    def run(self) -> _Checked:
        """Problems and touched bytes."""
        wanted = {
            i
            for i, n in enumerate(self.plan.nodes)
            if n.computation == self.capture.computation and n.bucket is self.capture.bucket
        }
        where = f"{self.definition.name}"
        for index in sorted(wanted - set(self.definition.nodes)):
            node = self.plan.nodes[index]
            self._say(
                f"{where} lacks node {index} ({node.kind}" + (f" of layer '{node.layer}')" if node.layer else ")")
            )
        for index, node in self.definition.nodes.items():
            if index not in wanted:
                self._say(f"{where} has node {index} ({node.kind}), which is not one of its bucket's")
            else:
                self._node(node)
        return self.result

    def _say(self, text: str) -> None:
        self.result.problems.append(text)

    # ------------------------------------------------------------ nodes

    def _node(self, node: NodeCalls) -> None:
        planned = self.plan.nodes[node.index]
        if (planned.kind, planned.layer) != (node.kind, node.layer):
            self._say(f"{self.definition.name}: {node} is {planned.kind} of layer {planned.layer!r} in the plan")
        operands = list(self.extents.of_node(planned, self.capture.column))
        check = _NodeCheck(self, node, operands)
        for call in node.calls:
            check.call(call)
        check.end()
        self.result.touches[node.index] = check.touches

    def report(self, node: NodeCalls, text: str) -> None:
        """Note a problem of a node."""
        self._say(f"{self.definition.name}: {node}: {text}")


class _NodeCheck:
    """The checks of one node's calls."""

    def __init__(self, parent: _DefinitionCheck, node: NodeCalls, operands: Sequence[Extent]) -> None:
        self.parent = parent
        self.sources = parent.sources
        self.node = node
        self.operands = operands
        self.touches: list[Touch] = []

    def say(self, text: str) -> None:
        self.parent.report(self.node, text)

    def call(self, call: Call) -> None:
        if isinstance(call, KernelCall):
            self._kernel(call)
        elif isinstance(call, CudnnCall):
            self._cudnn(call)
        elif isinstance(call, CopyCall):
            self._copy(call)
        elif isinstance(call, ClearCall):
            self._exact("clear", call.offset, call.nbytes, True)
        else:
            self._collective(call)

    def end(self) -> None:
        """Everything that the plan says is written must be."""
        for operand in self.operands:
            if not operand.writes or operand.begin == operand.end:
                continue
            if not self.node.calls and any(o.begin == operand.begin and o.reads for o in self.operands):
                continue  # written in place by doing nothing
            if not any(t.writes and t.begin < operand.end and operand.begin < t.end for t in self.touches):
                self.say(f"nothing writes {operand.name} ({operand.tensor})")

    # ------------------------------------------------------------ kernels

    def _kernel(self, call: KernelCall) -> None:
        signature = self.sources.signatures.get(call.name)
        if signature is None:
            self.say(f"kernels.cu has no kernel {call.name}")
            return
        self._limits(call, signature.threads)
        if len(call.args) != len(signature.parameters):
            self.say(f"{call.name} takes {len(signature.parameters)} arguments, not {len(call.args)}")
            return
        for number, (arg, parameter) in enumerate(zip(call.args, signature.parameters, strict=True)):
            what = f"argument {number} ({parameter.text}) of {call.name}"
            if not parameter.accepts(arg):
                self.say(f"{what} is {arg}")
            elif isinstance(arg, P):
                self._pointer(arg.offset, parameter, what)
            elif isinstance(arg, S):
                self._scratch(arg.offset, parameter, what)
            else:
                self._number(arg, what)

    def _limits(self, call: KernelCall, threads: int | None) -> None:
        for name, sizes, most in (("grid", call.grid, MAX_GRID), ("block", call.block, MAX_BLOCK)):
            if len(sizes) != 3 or any(not 1 <= s <= m for s, m in zip(sizes, most, strict=False)):
                self.say(f"{call.name} has a {name} of {sizes}, allowed are 1 to {most}")
        count = call.block[0] * call.block[1] * call.block[2]
        bound = MAX_THREADS if threads is None else min(threads, MAX_THREADS)
        if count > bound:
            self.say(f"{call.name} has {count} threads a block, at most {bound} are allowed")
        if not 0 <= call.shared <= MAX_SHARED:
            self.say(f"{call.name} wants {call.shared} bytes of shared memory, a block has at most {MAX_SHARED}")

    def _number(self, arg: I | N | F | D, what: str) -> None:
        if isinstance(arg, I | N):
            bits = 63 if isinstance(arg, I) else 31
            if type(arg.value) is not int or not -(1 << bits) <= arg.value < 1 << bits:
                self.say(f"{what} is {arg}, which does not fit")
        elif type(arg.value) not in (int, float):
            self.say(f"{what} is {arg}, which is no number")

    def _pointer(self, offset: int, parameter: Parameter, what: str) -> None:
        if offset % parameter.alignment:
            self.say(f"{what} is at {offset}, not a multiple of {parameter.alignment}")
        held = self._holding(offset, parameter.writable)
        if held is None:
            self._stray(offset, parameter.writable, what)
        else:
            self.touches.append(Touch(offset, held.end, parameter.writable, held.tensor))

    def _holding(self, offset: int, writing: bool) -> Extent | None:
        """The operand that an address lies in; of several (in place) the one that reaches furthest."""
        held = [o for o in self.operands if o.holds(offset) and (o.writes or not writing)]
        return max(held, key=lambda o: o.end, default=None)

    def _stray(self, offset: int, writing: bool, what: str) -> None:
        if writing and (read := self._holding(offset, False)) is not None:
            self.say(f"{what} writes to {read.name} ({read.tensor}), which the plan says it reads")
            return
        near = [t.name for t in self.parent.plan.tensors if t.offset <= offset < t.offset + t.slot]
        lies = f"in {' or '.join(near[:3])}" if near else "in no tensor"
        self.say(f"{what} points {lies} (offset {offset}), which is no operand of this node")

    def _scratch(self, offset: int, parameter: Parameter | None, what: str, size: int = 1) -> None:
        if not 0 <= offset <= self.node.scratch - size:
            self.say(f"{what} lies outside the node's {self.node.scratch} bytes of scratch memory (offset {offset})")
        elif parameter is not None and offset % parameter.alignment:
            self.say(f"{what} is at {offset} of the scratch memory, not a multiple of {parameter.alignment}")

    # ------------------------------------------------------------ exact bytes

    def _exact(self, what: str, offset: int, nbytes: int, writes: bool) -> None:
        if nbytes < 1:
            self.say(f"{what} of {nbytes} bytes")
            return
        held = self._holding(offset, writes)
        if held is None:
            self._stray(offset, writes, what)
        elif offset + nbytes > held.end:
            where = f"{held.name} ({held.tensor}), which ends at {held.end}"
            self.say(f"{what} of {nbytes} bytes at {offset} leaves {where}")
        else:
            self.touches.append(Touch(offset, offset + nbytes, writes, held.tensor))

    def _copy(self, call: CopyCall) -> None:
        if isinstance(call.src, Host):
            self._host(call.src, call.nbytes)
        else:
            self._place(call.src, call.nbytes, False)
        self._place(call.dst, call.nbytes, True)

    def _place(self, place: Place, nbytes: int, writes: bool) -> None:
        if isinstance(place, Arena):
            self._exact("a copy to" if writes else "a copy from", place.offset, nbytes, writes)
        else:
            self.say(f"a copy {'to' if writes else 'from'} {place}")

    def _host(self, place: Host, nbytes: int) -> None:
        known = place.buffer in BUFFERS
        parts = staged_parts({t.name: t for t in self.parent.plan.tensors}, place.buffer) if known else {}
        if (tensor := parts.get(place.part)) is None:
            self.say(f"there is no staged input {place}")
        elif nbytes > (have := self.parent.extents.stored(tensor, self.parent.capture.column)):
            self.say(f"a copy of {nbytes} bytes from {place}, which has {have}")

    def _collective(self, call: CollectiveCall) -> None:
        try:
            size = DType(call.dtype).itemsize
        except ValueError:
            self.say(f"the collective {call.op} has the type {call.dtype!r}")
            return
        self._exact(f"the collective {call.op}", call.offset, call.count * size, True)

    # ------------------------------------------------------------ cuDNN

    def _cudnn(self, call: CudnnCall) -> None:
        description = self.sources.cudnn.get(call.key)
        if description is None:
            self.say(f"CUDNN has no graph {call.key}")
            return
        if wrong := problems_of(description):
            self.say(f"graph {call.key}: {'; '.join(wrong)}")
            return
        tensors, written = description["tensors"], outputs_of(description)
        given = {role: place for role, place in call.bindings.items() if role != "workspace"}
        for role in tensors:
            if role not in given:
                self.say(f"graph {call.key}: {role} is not bound")
        for role, place in given.items():
            if role not in tensors:
                self.say(f"graph {call.key} has no tensor {role}")
                continue
            what, size = f"{role} of graph {call.key}", tensor_bytes(tensors[role])
            if isinstance(place, S):
                self._scratch(place.offset, None, what, size)
                continue
            self._exact(what, place, size, role in written)
            self._type(role, place, str(tensors[role]["dtype"]), what)
        if isinstance(workspace := call.bindings.get("workspace"), int):
            if (held := self._holding(workspace, True)) is None:
                self._stray(workspace, True, f"the workspace of graph {call.key}")
            else:
                self.touches.append(Touch(workspace, held.end, True, held.tensor))

    def _type(self, role: str, offset: int, dtype: str, what: str) -> None:
        held = self._holding(offset, False)
        tensor = next((t for t in self.parent.plan.tensors if held is not None and t.name == held.tensor), None)
        if tensor is not None and tensor.dtype.value != dtype:
            self.say(f"{what} is described as {dtype}, {tensor.name} holds {tensor.dtype.value}")


# ---------------------------------------------------------------- races


@dataclass(frozen=True)
class _Access:
    position: int
    touch: Touch


def _races(
    sources: Sources, touches: Sequence[Mapping[int, list[Touch]]], workspaces: Mapping[str, int]
) -> Iterator[str]:
    plan = sources.plan
    sizes = scratch_sizes(sources.definitions, workspaces)
    places, _ = place_scratch(plan, sizes)
    base = align_up(plan.total, ALIGNMENT)
    for order in all_orders(plan):
        accesses: list[_Access] = []
        for position, (index, capture) in enumerate(order.items):
            accesses += [_Access(position, t) for t in touches[capture].get(index, ())]
            if sizes.get(index):
                begin = base + places[index]
                accesses.append(_Access(position, Touch(begin, begin + sizes[index], True, "scratch memory")))
        order, results = _with_results(plan, order)
        accesses += results
        yield from _order_races(plan, order, accesses)


def _with_results(plan: Plan, order: Order) -> tuple[Order, list[_Access]]:
    """The launch with the copy of its results, which the session adds, as a last position."""
    if not order.results:
        return order, []
    last = len(order.items)
    longer = Order(order.name, (*order.items, (-1, -1)), (*order.after, order.results), order.results)
    tensors = [plan.tensors[i] for i in result_tensors(plan)]
    reads = [Touch(t.offset, t.offset + t.dtype.itemsize, False, t.name) for t in tensors]
    return longer, [_Access(last, touch) for touch in reads]


def _order_races(plan: Plan, order: Order, accesses: Sequence[_Access]) -> Iterator[str]:
    """Pairs that overlap, found in the order of their first bytes; one sentence a pair of positions."""
    ancestors = order.ancestors
    said: set[tuple[int, int]] = set()
    active: list[_Access] = []
    for access in sorted(accesses, key=lambda a: (a.touch.begin, a.position)):
        begin = access.touch.begin
        active = [a for a in active if a.touch.end > begin]
        for other in active:
            a, b = sorted((other.position, access.position))
            if a == b or not (other.touch.writes or access.touch.writes) or ancestors[b] >> a & 1:
                continue
            if (a, b) not in said:
                said.add((a, b))
                shared = dict.fromkeys((other.touch.what, access.touch.what))
                both = f"{_label(plan, order, a)} and {_label(plan, order, b)}"
                yield f"launch {order.name}: {both} race on {' and '.join(shared)}"
        active.append(access)


def _label(plan: Plan, order: Order, position: int) -> str:
    index = order.items[position][0]
    if index < 0:
        return "the copy of the results"
    node = plan.nodes[index]
    return f"{node.kind}" + (f" of layer '{node.layer}'" if node.layer else "") + f" ({node.bucket.name})"


def scratch_of(sources: Sources, workspaces: Mapping[str, int]) -> int:
    """Bytes of scratch memory that a session of these sources needs beside the plan's total."""
    return place_scratch(sources.plan, scratch_sizes(sources.definitions, workspaces))[1]
