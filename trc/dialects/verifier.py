"""The verifier: every problem of a module at once, each with its place."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import IRDLOperation, OptPropertyDef, VerificationContext
from xdsl.traits import IsTerminator, NoTerminator
from xdsl.utils.exceptions import VerifyException

from trc.diagnostics import CompileError, Diagnostic, diagnostic_at
from trc.dialects.attributes import CheckedOp
from trc.dialects.table import Finding, Table


def problems(module: ModuleOp) -> list[Diagnostic]:
    """Everything that is wrong with a module, in the order of its text.

    Checked are: definitions before uses, terminators, each operation by itself, symbols (through one table), and what
    must hold between the operations of memplan and graph. Kinds are those registered in
    `trc_runtime.schema.kinds.KINDS`, so import `trc.layers.registry` before verifying graphs.
    """
    found: list[Finding] = []
    defined: set[SSAValue] = set()
    unsound: set[Operation] = set()
    order: dict[Operation, int] = {}

    def visit(op: Operation) -> None:
        order[op] = len(order)
        for n, value in enumerate(op.operands):
            if value not in defined:
                name = f" %{value.name_hint}" if value.name_hint else ""
                found.append((op, f"{op.name}: operand {n}{name} is used before its definition"))
        broken = list(_definition_problems(op))
        own = broken or list(_own_problems(op))
        if own and (broken or not (isinstance(op, CheckedOp) and op.STAYS_READABLE)):
            unsound.add(op)
        found.extend((op, message) for message in (*_terminator_problems(op), *own))
        for region in op.regions:
            for block in region.blocks:
                defined.update(block.args)
                for inner in block.ops:
                    visit(inner)
        defined.update(op.results)

    visit(module)
    for op in order:
        if isinstance(op, ModuleOp) and op not in unsound:
            found.extend(_across(Table(op, unsound)))
    found.sort(key=lambda finding: order[finding[0]])
    return [diagnostic_at(op, message) for op, message in found]


def verify(module: ModuleOp) -> None:
    """CompileError with all problems of the module, if there are any."""
    found = problems(module)
    if found:
        raise CompileError(found)


def _definition_problems(op: Operation) -> Iterator[str]:
    """Whether properties, operands and regions are those of the operation's definition; its accessors need that."""
    if isinstance(op, ModuleOp):
        # Its trait checks symbols, with one message and no place for all; `_across` does that better.
        if len(op.regions) != 1 or len(op.regions[0].blocks) != 1:
            yield "builtin.module: a module has one region with one block"
        return
    try:
        if isinstance(op, CheckedOp):
            _verify_definition(op)
        else:
            op.verify_()
    except VerifyException as err:
        yield f"{op.name}: {_first_line(err)}"
    except Exception as err:
        # A property of a class that the definition cannot even compare: still a message, never a traceback.
        yield f"{op.name}: cannot be verified: {type(err).__name__}: {_first_line(err)}"


def _verify_definition(op: CheckedOp) -> None:
    """VerifyException where an operation is not what its definition says."""
    definition = type(op).get_irdl_definition()
    if op.operands or op.results or op.regions or definition.operands or definition.results or definition.regions:
        definition.verify(op)
        return
    # Tensors and nodes are properties and nothing else. xDSL would look for operands, results, regions and successors
    # first, which is half of its time. Their one trait asks for a symbol, and so does the property's rule.
    context = VerificationContext()
    for name, rule in definition.properties.items():
        value = op.properties.get(name)
        if value is not None:
            rule.constr.verify(value, context)
        elif not isinstance(rule, OptPropertyDef):
            raise VerifyException(f"property '{name}' expected in operation '{op.name}'")
    for name in op.properties:
        if name not in definition.properties:
            raise VerifyException(f"property '{name}' is not defined by the operation '{op.name}'")


def _own_problems(op: Operation) -> Iterator[str]:
    """What is wrong with one operation of the right form, without a look at others."""
    if not isinstance(op, CheckedOp):
        return
    try:
        for message in op.problems():
            yield f"{op.name}: {message}"
    except Exception as err:
        yield f"{op.name}: cannot be verified: {type(err).__name__}: {_first_line(err)}"


def _first_line(err: Exception) -> str:
    return (str(err).strip() or type(err).__name__).splitlines()[0]


def _terminator_problems(op: Operation) -> Iterator[str]:
    if isinstance(op, IRDLOperation) and not op.has_trait(NoTerminator):
        for region in op.regions:
            for block in region.blocks:
                last = block.last_op
                if last is not None and not last.has_trait(IsTerminator):
                    yield f"{op.name}: its last operation is {last.name}, which is no terminator"
    block = op.parent
    if block is not None and block.last_op is not op and op.has_trait(IsTerminator):
        yield f"{op.name}: a terminator stands last in its block"


def _across(table: Table) -> Iterator[Finding]:
    for name, op in table.repeated:
        first = diagnostic_at(table.symbols[name], "").location
        where = f" at {first}" if first else ""
        taken = table.symbols[name].name
        advice = "; give the network another name" if "arch.model" in (taken, op.name) else ""
        yield op, f"{op.name}: symbol @{name} is already defined{where} as {taken}{advice}"
    # Imported when needed: a module of layers alone starts without them.
    from trc.dialects.graph.checks import graph_findings
    from trc.dialects.memplan.checks import memplan_findings

    yield from memplan_findings(table)
    yield from graph_findings(table)
