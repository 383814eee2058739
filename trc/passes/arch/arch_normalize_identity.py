"""Step 4: identities."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass

from trc.diagnostics import CompileError, Diagnostic, diagnostic_at
from trc.dialects.arch import AddOp, IdentityOp, ModelOp
from trc.dialects.attributes import string
from trc.passes.arch.rewriting import Names, end_of, erase, input_of, insert_before, layers, models


@dataclass(frozen=True)
class ArchNormalizeIdentityPass(ModulePass):
    """Remove identities; an empty shortcut has exactly one.

    A sum with the shortcut on the wrong side is turned round, so that the empty branch is always the shortcut.
    """

    name = "arch-normalize-identity"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Normalise every model of the module."""
        for model in models(op):
            normalize(model)


def normalize(model: ModelOp) -> None:
    """One model."""
    ops = layers(model)
    identities = [op for op in ops if isinstance(op, IdentityOp)]
    sums = [op for op in ops if isinstance(op, AddOp)]
    if not identities and not sums:
        return
    # What each value is once the identities are gone, and how many layers then use it.
    roots: dict[SSAValue, SSAValue] = {}
    for op in identities:
        roots[op.result] = roots.get(input_of(op), input_of(op))

    def root(value: SSAValue) -> SSAValue:
        return roots.get(value, value)

    uses = Counter(root(value) for op in ops if not isinstance(op, IdentityOp) for value in op.operands)
    uses[root(end_of(model).value)] += 1

    names = Names(ops)
    kept: set[IdentityOp] = set()
    problems: list[Diagnostic] = []
    for op in sums:
        shortcut, stem = op.shortcut, op.stem
        if root(shortcut) is root(stem):
            problems.append(diagnostic_at(op, "both branches of this sum are empty, so it would double its input"))
            continue
        if uses[root(stem)] > 1 and uses[root(shortcut)] == 1:
            shortcut, stem = stem, shortcut
        if uses[root(shortcut)] > 1:
            op.operands = [identity_for(op, shortcut, root(shortcut), kept, names), root(stem)]
        else:
            op.operands = [root(shortcut), root(stem)]
    if problems:
        raise CompileError(problems)
    removed = [op for op in identities if op not in kept]
    for op in removed:
        op.result.replace_all_uses_with(root(op.result))
    erase(removed)


def identity_for(op: AddOp, shortcut: SSAValue, root: SSAValue, kept: set[IdentityOp], names: Names) -> SSAValue:
    """The identity on a sum's empty shortcut: the one that is there, or a new one."""
    owner = shortcut.owner
    if isinstance(owner, IdentityOp) and shortcut.has_one_use():
        owner.operands = [root]
        kept.add(owner)
        return shortcut
    new = IdentityOp.create(
        operands=[root], result_types=[root.type], properties={"layer": string(names.fresh("identity"))}
    )
    new.location = op.location
    insert_before(op, new)
    return new.result
