"""Phase 4: the computation graphs."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from trc.diagnostics import CompileError
from trc.dialects.graph import ComputationOp
from trc.passes.plan.access import TensorTable
from trc.passes.plan.common import absent, append, plan_of, read_numbers, tensors_of
from trc.passes.plan.computation import Average, Filled, build_infer, build_train
from trc.passes.plan.network import read_network
from trc.passes.plan.settings import Number, ema_from_options, optimizer_from_options
from trc_runtime.schema.regions import AVERAGES


@dataclass(frozen=True)
class GraphBuildComputationPass(ModulePass):
    """Build the computations `train` and `infer`: nodes in buckets, without shapes.

    The optimizer's options are those of plan-derive-all-shapes; of its numbers only whether they are zero matters
    here. So do `ema_decay`'s: above 0 a moving average follows each step that is applied, with `ema_warmup` more freely
    in the first ones. With `world_size` above 1 the gradients, statistics and results are averaged over the ranks.
    """

    name = "graph-build-computation"

    optimizer: str = "adamw"
    momentum: Number = 0.0
    nesterov: bool = False
    weight_decay: Number = 0.0
    decoupled: bool = False
    world_size: int = 1
    ema_decay: Number = 0.0
    ema_warmup: bool = False

    def __post_init__(self) -> None:
        """Read numbers that arrived as words."""
        read_numbers(self, "momentum", "weight_decay", "ema_decay")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Append the computations to the module."""
        plan_of(op)
        absent(op, ComputationOp, self.name)
        if self.world_size < 1:
            raise CompileError(f"option world-size must be at least 1, not {self.world_size}")
        settings = optimizer_from_options(
            self.optimizer, self.momentum, self.nesterov, 0.9, 0.999, 1e-8, self.weight_decay, self.decoupled
        )
        ema = ema_from_options(self.ema_decay, self.ema_warmup)
        network = read_network(op)
        table = TensorTable(tensors_of(op))
        average = None
        if ema is not None:
            average = Average(ema, frozenset(t.name_ for t in table.tensors if t.region_ in AVERAGES))
        train = build_train(network, settings, Filled(table.regions), self.world_size, average)
        infer = build_infer(network, self.world_size, average)
        location = network.layers[0].op.location
        computations = [train.finish("train", location), infer.finish("infer", location)]
        check_touched(table, computations)
        append(op, *computations)


def check_touched(table: TensorTable, computations: list[ComputationOp]) -> None:
    """Every symbol is in the table, and every tensor of the table is read by a node, or by the host."""
    read: set[int] = set()
    for buckets in table.accesses(computations).values():
        for nodes in buckets.values():
            for node in nodes:
                read.update(node.reads)
    for n, tensor in enumerate(table.tensors):
        if n not in read and not tensor.region_.name.startswith("R_"):
            raise CompileError.at(
                tensor,
                f"no node reads tensor @{tensor.name_}: run plan-derive-all-shapes with the options of "
                "graph-build-computation",
            )
