"""The calls of every captured definition: what driver.py says and kernels.cu must hold.

Each node of the plan becomes calls in one of three ways: cuDNN graphs (`cudnn`), kernels of our own (`lowering`), or
the copies, fills and collectives that the runtime does itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from trc.codegen.cuda import cudnn
from trc.codegen.cuda.cudnn import Description
from trc.codegen.cuda.lowering import lower as lower_kernels
from trc.codegen.cuda.lowering import owns as kernels_own
from trc.codegen.cuda.lowering.launch import Instance, Launch, S
from trc.codegen.cuda.lowering.view import NodeView
from trc.diagnostics import CompileError, Diagnostic
from trc_runtime.schema.dtypes import Precision
from trc_runtime.schema.kinds import Access
from trc_runtime.schema.plan import Capture, Plan, RangeRef
from trc_runtime.schema.regions import Region, padded_elements, region_range
from trc_runtime.schema.staging import BUFFERS, BYTES


@dataclass(frozen=True)
class CudnnCall:
    """The graph of that name with its tensors' places by role."""

    key: str
    bindings: Mapping[str, int | S]


@dataclass(frozen=True)
class CopyCall:
    """`nbytes` bytes to an offset in the arena, from another or from a part of the host's staging memory."""

    target: int
    source: int | tuple[str, str]
    nbytes: int


@dataclass(frozen=True)
class ClearCall:
    """Zeros to `nbytes` bytes of the arena."""

    offset: int
    nbytes: int


@dataclass(frozen=True)
class CollectiveCall:
    """An operation over all ranks on `count` elements, in place."""

    op: str
    offset: int
    count: int
    dtype: str


Call = Launch | CudnnCall | CopyCall | ClearCall | CollectiveCall


@dataclass(frozen=True)
class NodeCode:
    """A node's calls, which run in order, and the bytes of scratch memory they want."""

    view: NodeView
    calls: tuple[Call, ...]
    scratch: int = 0


@dataclass(frozen=True)
class Function:
    """A captured definition: the nodes of one bucket in one column."""

    name: str
    capture: Capture
    nodes: tuple[NodeCode, ...]


@dataclass(frozen=True)
class Program:
    """Everything that is generated for a plan: its definitions, and the kernels and cuDNN graphs that they use."""

    functions: tuple[Function, ...]
    instances: Mapping[str, Instance]
    """By name, sorted."""
    descriptions: Mapping[str, Description]
    """By key, sorted."""
    scratch: int
    """The most scratch memory that a node wants, the workspaces of cuDNN aside."""

    def layers(self) -> dict[str, list[str]]:
        """The layers that use each kernel and each cuDNN graph, in the order of the plan."""
        found: dict[str, dict[str, None]] = {}
        for function in self.functions:
            for node in function.nodes:
                layer = node.view.node.layer
                for call in node.calls:
                    if layer is not None and (name := name_of(call)) is not None:
                        found.setdefault(name, {})[layer] = None
        return {name: list(layers) for name, layers in found.items()}


def name_of(call: Call) -> str | None:
    """The name of the kernel or cuDNN graph that a call runs, or None."""
    if isinstance(call, Launch):
        return call.instance.name
    return call.key if isinstance(call, CudnnCall) else None


def lower_plan(plan: Plan) -> Program:
    """All definitions of a plan. CompileError names every kind and layer that CUDA cannot do."""
    if plan.config.precision is Precision.FP64:
        raise CompileError("precision fp64 exists on the CPU only; use fp32, tf32, amp-fp16 or amp-bf16 on target cuda")
    nodes_of: dict[tuple[str, object], list[int]] = {}
    for index, node in enumerate(plan.nodes):
        nodes_of.setdefault((node.computation, node.bucket), []).append(index)
    problems: dict[Diagnostic, None] = {}
    instances: dict[str, Instance] = {}
    descriptions: dict[str, Description] = {}
    functions: list[Function] = []
    for number, capture in enumerate(plan.captures):
        nodes: list[NodeCode] = []
        for index in nodes_of.get((capture.computation, capture.bucket), []):
            try:
                nodes.append(_lower_node(NodeView(plan, index, capture.column), instances, descriptions))
            except CompileError as err:
                problems.update(dict.fromkeys(err.problems))
        name = f"{capture.computation}_{capture.bucket.name.lower()}_{number}"
        functions.append(Function(name, capture, tuple(nodes)))
    if problems:
        raise CompileError(list(problems))
    return Program(
        functions=tuple(functions),
        instances=dict(sorted(instances.items())),
        descriptions=dict(sorted(descriptions.items())),
        scratch=max((n.scratch for f in functions for n in f.nodes), default=0),
    )


def _lower_node(view: NodeView, instances: dict[str, Instance], descriptions: dict[str, Description]) -> NodeCode:
    """The calls of a node; what they use is added to the two tables."""
    if cudnn.owns(view):
        graph = cudnn.lower(view)
        descriptions[graph.key] = graph.description
        code = NodeCode(view, (CudnnCall(graph.key, graph.bindings), *graph.after), graph.scratch)
    elif kernels_own(view.plan, view.index, view.column):
        lowered = lower_kernels(view.plan, view.index, view.column)
        code = NodeCode(view, lowered.launches, lowered.scratch)
    elif (calls := _CALLS.get(view.kind)) is not None:
        code = NodeCode(view, tuple(calls(view)))
    else:
        raise view.problem("there is no kernel")
    for call in code.calls:
        if isinstance(call, Launch):
            known = instances.setdefault(call.instance.name, call.instance)
            if known != call.instance:
                raise view.problem(f"two kernels have the name {known.name}")
    return code


# ---------------------------------------------------------------- what needs no kernel


_PARTS: Mapping[Region, str] = {
    Region[f"I_{buffer}_{part.upper()}"]: part for buffer in BUFFERS for part in ("label", "data", BYTES)
}


def _h2d_copy(view: NodeView) -> Iterator[Call]:
    """Labels and images from the staging memory of a buffer, as they lie there."""
    buffer = view.text("buffer")
    for operand in view.node.operands:
        if not isinstance(ref := operand.ref, RangeRef):
            continue
        regions = region_range(ref.first, ref.last)
        for tensor in sorted((t for t in view.plan.tensors if t.region in regions), key=lambda t: t.offset):
            shape = tensor.shapes[view.column]
            if shape is None:
                raise view.problem(f"'{tensor.name}' does not exist in variant {view.plan.variants[view.column].name}")
            part = _PARTS.get(tensor.region)
            if part is None:
                raise view.problem(f"copies input to '{tensor.name}', which lies in {tensor.region.name}")
            nbytes = padded_elements(shape, tensor.dtype, tensor.region) * tensor.dtype.itemsize
            yield CopyCall(tensor.offset, (buffer, part), nbytes)


def _copy(view: NodeView) -> Iterator[Call]:
    """The bytes of x to y, unless they are there already."""
    x, y = view["x"], view["y"]
    if (x.shape, x.pitch, x.dtype) != (y.shape, y.pitch, y.dtype):
        raise view.problem(f"'{x.name}' and '{y.name}' do not lie in memory alike")
    if x.offset != y.offset:
        yield CopyCall(y.offset, x.offset, x.elements * x.dtype.itemsize)


def _clear(view: NodeView) -> Iterator[Call]:
    for span in view.ranges(Access.WRITE):
        if span.elements:
            yield ClearCall(span.offset, span.elements * span.dtype.itemsize)


def _mean_allreduce(view: NodeView) -> Iterator[Call]:
    for span in view.ranges(Access.UPDATE):
        if span.elements:
            yield CollectiveCall("mean", span.offset, span.elements, span.dtype.value)


_CALLS: Mapping[str, Callable[[NodeView], Iterator[Call]]] = {
    "h2d_copy": _h2d_copy,
    "copy": _copy,
    "clear": _clear,
    "mean_allreduce": _mean_allreduce,
}
