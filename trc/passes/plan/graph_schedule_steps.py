"""The steps: which buckets run together, and their nodes as a DAG."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from trc.diagnostics import CompileError
from trc.dialects.graph import ComputationOp, StepOp, VariantOp
from trc.passes.plan.access import NodeAccess, TensorTable
from trc.passes.plan.aliases import alias_pairs
from trc.passes.plan.common import absent, append, required, tensors_of
from trc.passes.plan.dag import DagNode, order_nodes
from trc.passes.plan.steps import plan_steps


@dataclass(frozen=True)
class GraphScheduleStepsPass(ModulePass):
    """Write the `graph.step`s, each with the edges between its nodes.

    Two nodes are ordered where they touch the same tensor (a range touches all of its regions') and one writes;
    beyond that each layer's nodes come after those of the layers two and more before it, and near the peak of
    memory after all earlier ones.
    """

    name = "graph-schedule-steps"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Append the steps to the module."""
        absent(op, StepOp, self.name)
        computations = required(op, ComputationOp, "graph.computation", "graph-build-computation")
        required(op, VariantOp, "graph.variant", "graph-share-or-clone")
        table = TensorTable(tensors_of(op))
        sizes = {n: t.slot_ or 0 for n, t in enumerate(table.tensors) if table.transient[n]}
        nodes = table.accesses(computations)
        if missing := {"train", "infer"} - nodes.keys():
            raise CompileError(f"the module lacks the computation {', '.join(sorted(missing))}")
        location = computations[0].location
        dag = {c: {g: [dag_node(a, table) for a in accs] for g, accs in b.items()} for c, b in nodes.items()}
        for step in plan_steps(dag):
            after = order_nodes([n for g in step.buckets for n in dag[step.computation][g]], sizes)
            append(op, StepOp(step.name, step.computation, step.columns, step.buckets, after, location=location))


def dag_node(access: NodeAccess, table: TensorTable) -> DagNode:
    """A node as the scheduler sees it."""
    aliases = tuple(alias_pairs(access, table))
    return DagNode(access.reads, access.writes, bool(access.transient), access.op.layer_, aliases)
