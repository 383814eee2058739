"""What must hold across the operations of graph, and between them and memplan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trc.dialects.attributes import hint
from trc.dialects.graph.atlas import AtlasOp
from trc.dialects.graph.bucket import BucketOp
from trc.dialects.graph.computation import ComputationOp
from trc.dialects.graph.node import NodeOp
from trc.dialects.graph.step import StepOp
from trc.dialects.graph.variant import VariantOp
from trc.dialects.memplan.spec import SpecOp
from trc.dialects.memplan.tensor import TensorOp
from trc.dialects.table import Finding, Table
from trc_runtime.schema.graphs import SHAPE_INVARIANT, GraphId, ShapeId, Variant
from trc_runtime.schema.kinds import Access

_ACCESSES = tuple(Access)


def graph_findings(table: Table) -> Iterator[Finding]:
    """All problems across operations, each at the operation it is about."""
    yield from _node_symbols(table)
    yield from _variants(table)
    yield from _steps(table)
    yield from _atlas(table)


def _nodes(table: Table) -> Iterator[NodeOp]:
    for computation in table.all(ComputationOp):
        for bucket in _buckets(table, computation).values():
            yield from (node for node in bucket.nodes_ if node not in table.unsound)


def _buckets(table: Table, computation: ComputationOp) -> dict[GraphId, BucketOp]:
    """The sound buckets of a computation."""
    ops = computation.body.block.ops
    return {op.id_: op for op in ops if isinstance(op, BucketOp) and op not in table.unsound}


def tensor_names(node: NodeOp) -> Iterator[str]:
    """The tensors that a node touches by name, scalars included."""
    for access in _ACCESSES:
        for ref in node.operand_refs(access):
            if isinstance(ref, str):
                yield ref
    yield from node.scalars_


def _not_a(table: Table, name: str, wanted: str, choices: Iterable[str]) -> str:
    """Why a symbol is not what it should be."""
    op = table.symbols.get(name)
    if op is None:
        return f"symbol @{name} is not defined{hint(name, choices)}"
    return f"@{name} is a {op.name}, not a {wanted}"


def _node_symbols(table: Table) -> Iterator[Finding]:
    symbols = table.symbols
    known: set[str] = {name for name, op in symbols.items() if isinstance(op, TensorOp)}
    scalars = {op.name_ for op in table.all(TensorOp) if op.region_.name.startswith("S_") and not op.region_.transient}
    tensors = {op.name_ for op in table.all(TensorOp)}
    for node in _nodes(table):
        for name in dict.fromkeys(tensor_names(node)):
            if name not in known:
                yield node, f"kind {node.kind_}: {_not_a(table, name, 'memplan.tensor', known)}"
        for name in node.scalars_:
            if name in tensors and name not in scalars:
                region = _region(table, name)
                yield node, f"kind {node.kind_}: @{name} in {region} is no device scalar; scalars lie in S_ regions"


def _region(table: Table, name: str) -> str:
    tensor = table.get(name, TensorOp)
    return "?" if tensor is None else tensor.region_.name


def _variants(table: Table) -> Iterator[Finding]:
    variants = table.all(VariantOp)
    if not variants:
        return
    seen: set[Variant] = set()
    for op in variants:
        variant = op.variant_
        if variant in seen:
            yield op, f"variant @{variant.symbol} is given two computations"
        seen.add(variant)
        if table.get(variant.symbol, SpecOp) is None:
            yield op, _not_a(table, variant.symbol, "memplan.spec", [s.name_ for s in table.all(SpecOp)])
        if table.get(op.computation_, ComputationOp) is None:
            yield op, _not_a(table, op.computation_, "graph.computation", _computations(table))
    missing = [f"@{v.symbol}" for v in Variant if v not in seen]
    if missing:
        yield variants[0], f"only some variants have a computation; {', '.join(missing)} has none"


def _computations(table: Table) -> list[str]:
    return [op.name_ for op in table.all(ComputationOp)]


def _uses(table: Table) -> dict[int, str]:
    """The computation of each column."""
    return {op.variant_.value: op.computation_ for op in table.all(VariantOp)}


def _steps(table: Table) -> Iterator[Finding]:
    uses = _uses(table)
    present = {
        op.name_: sum(1 << n for n, shape in enumerate(op.shapes_) if shape is not None) for op in table.all(TensorOp)
    }
    # For each bucket its nodes, and for each tensor touched there the first node that does.
    contents: dict[str, dict[GraphId, tuple[int, dict[str, NodeOp]]]] = {}
    for computation in table.all(ComputationOp):
        buckets = contents.setdefault(computation.name_, {})
        for graph_id, bucket in _buckets(table, computation).items():
            touched: dict[str, NodeOp] = {}
            nodes = bucket.nodes_
            for node in nodes:
                if node in table.unsound:
                    continue
                for name in tensor_names(node):
                    touched.setdefault(name, node)
            buckets[graph_id] = (len(nodes), touched)
    for step in table.all(StepOp):
        yield from _step(table, step, contents, uses, present)


def _step(
    table: Table,
    step: StepOp,
    contents: dict[str, dict[GraphId, tuple[int, dict[str, NodeOp]]]],
    uses: dict[int, str],
    present: dict[str, int],
) -> Iterator[Finding]:
    name = f"step @{step.name_}"
    buckets = contents.get(step.computation_)
    if buckets is None:
        if table.get(step.computation_, ComputationOp) is None:
            yield step, f"{name}: {_not_a(table, step.computation_, 'graph.computation', contents)}"
        return
    columns = step.columns_
    for column in columns:
        used = uses.get(column)
        # A bucket that the variant's own computation lacks (an input transfer, say) may come from the other.
        own = contents.get(used or "", {})
        if used is not None and used != step.computation_ and any(graph_id in own for graph_id in step.buckets_):
            variant = Variant(column).symbol
            yield step, f"{name} runs @{step.computation_} in column {column}, but variant @{variant} uses @{used}"
    wanted = sum(1 << column for column in columns)
    count = 0
    for graph_id in step.buckets_:
        if graph_id not in buckets:
            yield step, f"{name}: computation @{step.computation_} has no bucket {graph_id.name}"
            continue
        length, touched = buckets[graph_id]
        count += length
        for tensor, node in touched.items():
            lacking = wanted & ~present.get(tensor, wanted)
            if lacking:
                variants = ", ".join(v.symbol for v in Variant if lacking >> v.value & 1)
                yield node, f"kind {node.kind_}: @{tensor} has no shape in {variants}, where {name} runs"
    if all(graph_id in buckets for graph_id in step.buckets_) and count != len(step.after_):
        yield step, f"{name} orders {len(step.after_)} nodes, but its buckets hold {count}"


def _atlas(table: Table) -> Iterator[Finding]:
    atlases = table.all(AtlasOp)
    for atlas in atlases[1:]:
        yield atlas, "second atlas of the module"
    if not atlases:
        return
    atlas = atlases[0]
    uses = _uses(table)
    buckets = {op.name_: set(_buckets(table, op)) for op in table.all(ComputationOp)}
    shapes: dict[Variant, ShapeId] = {
        op.variant_: ShapeId(op.batch_, op.height_, op.width_, op.channels_) for op in table.all(SpecOp)
    }
    captures = atlas.captures_
    for n, capture in enumerate(captures):
        what = f"capture {n} ({capture.computation} {capture.bucket.name})"
        if capture.computation not in buckets:
            yield atlas, f"{what}: {_not_a(table, capture.computation, 'graph.computation', buckets)}"
        elif capture.bucket not in buckets[capture.computation]:
            yield atlas, f"{what}: computation @{capture.computation} has no bucket {capture.bucket.name}"
    for variant, row in zip(Variant, atlas.table_, strict=True):
        for graph_id, index in zip(GraphId, row, strict=True):
            if index == -1:
                continue
            capture = captures[index]
            entry = f"{variant.symbol} {graph_id.name} = {index}"
            used = uses.get(variant.value, capture.computation)
            if used != capture.computation and graph_id in buckets.get(used, ()):
                yield atlas, f"{entry} captures @{capture.computation}, but the variant uses @{used}"
            shape = shapes.get(variant, capture.shape)
            if capture.shape not in (SHAPE_INVARIANT, shape):
                yield atlas, f"{entry} is captured at {list(capture.shape)}, but the variant has {list(shape)}"
