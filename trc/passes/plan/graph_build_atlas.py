"""The atlas: which captured definition serves each variant and graph id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from trc.diagnostics import CompileError
from trc.dialects.graph import AtlasOp, ComputationOp, StepOp
from trc.dialects.memplan import SpecOp
from trc.passes.plan.access import NodeAccess, TensorTable
from trc.passes.plan.common import absent, append, required, specs_of, tensors_of
from trc_runtime.schema.graphs import SHAPE_INVARIANT, GraphId, ShapeId, Variant
from trc_runtime.schema.plan import Capture

Key = tuple[str, GraphId]
"""A bucket: computation and graph id."""


@dataclass(frozen=True)
class GraphBuildAtlasPass(ModulePass):
    """Write the `graph.atlas`: 6 variants by 33 graph ids, deduplicated.

    An entry stands where a step runs the bucket in the variant's column. A bucket is captured once a shape, or once
    for all where no tensor that it touches differs between the columns it runs in.
    """

    name = "graph-build-atlas"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Append the atlas to the module."""
        absent(op, AtlasOp, self.name)
        steps = required(op, StepOp, "graph.step", "graph-schedule-steps")
        specs = specs_of(op)
        table = TensorTable(tensors_of(op))
        nodes = table.accesses(required(op, ComputationOp, "graph.computation", "graph-build-computation"))
        used = columns_of(steps)
        invariant = {key: is_invariant(table, nodes[key[0]][key[1]], sorted(columns)) for key, columns in used.items()}
        captures: dict[tuple[Key, ShapeId], Capture] = {}
        index: dict[tuple[Key, ShapeId], int] = {}
        rows = [[-1] * len(GraphId) for _ in Variant]
        for column, row in enumerate(rows):
            for key in sorted((k for k, columns in used.items() if column in columns), key=lambda k: k[1].value):
                shape = SHAPE_INVARIANT if invariant[key] else shape_id(specs[column])
                if (key, shape) not in captures:
                    index[key, shape] = len(captures)
                    captures[key, shape] = Capture(key[0], key[1], shape, column)
                row[key[1].value] = index[key, shape]
        append(op, AtlasOp(list(captures.values()), rows, location=steps[0].location))


def columns_of(steps: Sequence[StepOp]) -> dict[Key, set[int]]:
    """The columns in which steps run each bucket."""
    used: dict[Key, set[int]] = {}
    owner: dict[tuple[int, GraphId], str] = {}
    for step in steps:
        for graph_id in step.buckets_:
            used.setdefault((step.computation_, graph_id), set()).update(step.columns_)
            for column in step.columns_:
                if owner.setdefault((column, graph_id), step.computation_) != step.computation_:
                    raise CompileError.at(
                        step,
                        f"step @{step.name_}: {graph_id.name} of another computation already serves column {column}",
                    )
    return used


def is_invariant(table: TensorTable, nodes: Sequence[NodeAccess], columns: Sequence[int]) -> bool:
    """Whether no tensor that the nodes touch differs between the columns."""
    touched = frozenset[int]().union(*(n.touched for n in nodes))
    for t in touched:
        shapes = table.tensors[t].shapes_
        if any(shapes[c] != shapes[columns[0]] for c in columns):
            return False
    return True


def shape_id(spec: SpecOp) -> ShapeId:
    """The shape id of a variant's input."""
    return ShapeId(spec.batch_, spec.height_, spec.width_, spec.channels_)
