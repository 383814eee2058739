"""What the plan passes share: finding what earlier passes left, and saying which pass to run where it is missing."""

from __future__ import annotations

from typing import TypeVar

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from trc.diagnostics import CompileError
from trc.dialects.memplan import PlanOp, SpecOp, TensorOp
from trc_runtime.schema.graphs import Variant

OpT = TypeVar("OpT", bound=Operation)


def ops_of(module: ModuleOp, kind: type[OpT]) -> list[OpT]:
    """The module-level operations of a class, in order."""
    return [op for op in module.body.block.ops if isinstance(op, kind)]


def required(module: ModuleOp, kind: type[OpT], what: str, by: str) -> list[OpT]:
    """Like `ops_of`; CompileError names the pass that makes them when there are none."""
    found = ops_of(module, kind)
    if not found:
        raise CompileError(f"the module has no {what}: run {by} first")
    return found


def absent(module: ModuleOp, kind: type[OpT], by: str) -> None:
    """CompileError if the module already holds what a pass is about to make."""
    if found := ops_of(module, kind):
        raise CompileError.at(found[0], f"{by} has already run on this module: it has {kind.name} operations")


def specs_of(module: ModuleOp) -> list[SpecOp]:
    """The six specs, in the order of the variants."""
    found = {op.name_: op for op in required(module, SpecOp, "memplan.spec", "plan-create-compile-specs")}
    if missing := [v.symbol for v in Variant if v.symbol not in found]:
        raise CompileError(f"memplan.spec is missing for {', '.join(missing)}: run plan-create-compile-specs")
    return [found[v.symbol] for v in Variant]


def tensors_of(module: ModuleOp) -> list[TensorOp]:
    """The layout table."""
    return required(module, TensorOp, "memplan.tensor", "plan-derive-all-shapes")


def plan_of(module: ModuleOp) -> PlanOp:
    """The memory plan."""
    return required(module, PlanOp, "memplan.plan", "plan-create-memory-plans")[0]


def append(module: ModuleOp, *ops: Operation) -> None:
    """Add operations at the end of the module."""
    module.body.block.add_ops(ops)


def insert_before_first(module: ModuleOp, kind: type[Operation], *ops: Operation) -> None:
    """Add operations in front of the first one of a class."""
    first = next((op for op in module.body.block.ops if isinstance(op, kind)), None)
    if first is None:
        append(module, *ops)
    else:
        module.body.block.insert_ops_before(ops, first)


def to_float(option: str, value: float | int | str) -> float:
    """The value of a numeric option. The pipeline syntax reads `1e-8` as a word, hence the string."""
    try:
        return float(value)
    except ValueError:
        raise CompileError(f"option {option} must be a number, not '{value}'") from None


def read_numbers(step: object, *fields: str) -> None:
    """Turn options of a pass that arrived as words (`1e-8`) into numbers, so that equal passes compare equal.

    A word that is no number stays, for `to_float` to refuse when the pass runs.
    """
    for field in fields:
        value: object = getattr(step, field)
        if isinstance(value, str):
            try:
                object.__setattr__(step, field, float(value))
            except ValueError:
                continue
