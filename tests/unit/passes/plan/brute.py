"""A slow, independent look at planned modules: what touches what, what comes before what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from xdsl.dialects.builtin import ModuleOp

from trc.dialects.graph import ComputationOp, StepOp
from trc.dialects.graph.node import NodeOp
from trc.dialects.memplan import TensorOp
from trc_runtime.schema.kinds import KINDS, Access
from trc_runtime.schema.regions import Region


@dataclass
class Touch:
    """A node's accesses: names of tensors, and (name, role) of the operands."""

    op: NodeOp
    reads: set[str] = field(default_factory=set[str])
    writes: set[str] = field(default_factory=set[str])
    roles: dict[tuple[str, bool], set[str]] = field(default_factory=dict[tuple[str, bool], set[str]])


class World:
    """Everything a module says, in plain Python."""

    def __init__(self, module: ModuleOp) -> None:
        self.module = module
        ops = list(module.body.block.ops)
        self.tensors = {t.name_: t for t in ops if isinstance(t, TensorOp)}
        self.steps = {s.name_: s for s in ops if isinstance(s, StepOp)}
        self.computations = {c.name_: c for c in ops if isinstance(c, ComputationOp)}

    def touch(self, node: NodeOp) -> Touch:
        kind = KINDS.get(node.kind_)
        assert kind is not None
        result = Touch(node)
        for access in Access:
            refs = node.operand_refs(access)
            for operand, ref in zip(kind.group(access), refs, strict=False):
                names = [ref] if isinstance(ref, str) else self.in_range(*ref)
                if access.reads:
                    result.reads.update(names)
                if access.writes:
                    result.writes.update(names)
                for name in names:
                    result.roles.setdefault((name, access.writes), set()).add(operand.name)
        result.reads.update(node.scalars_)
        return result

    def in_range(self, first: Region, last: Region) -> list[str]:
        regions = list(Region)
        wanted = regions[regions.index(first) : regions.index(last) + 1]
        return [name for name, t in self.tensors.items() if t.region_ in wanted]

    def nodes(self, step: StepOp) -> list[Touch]:
        buckets = self.computations[step.computation_].buckets_
        return [self.touch(node) for g in step.buckets_ for node in buckets[g].nodes_]

    @cached_property
    def all_nodes(self) -> list[Touch]:
        return [self.touch(n) for c in self.computations.values() for b in c.buckets_.values() for n in b.nodes_]


def ancestors(step: StepOp) -> list[set[int]]:
    """For each position all positions before it."""
    found: list[set[int]] = []
    for after in step.after_:
        mine: set[int] = set()
        for p in after:
            mine |= {p} | found[p]
        found.append(mine)
    return found


def unordered_conflicts(world: World, step: StepOp) -> Iterator[str]:
    """Pairs of nodes that touch the same tensor, one writing, without an order."""
    nodes, before = world.nodes(step), ancestors(step)
    for j, b in enumerate(nodes):
        for i, a in enumerate(nodes[:j]):
            shared = (a.writes & (b.reads | b.writes)) | (a.reads & b.writes)
            if shared and i not in before[j]:
                yield f"{step.name_}: {i} {a.op.kind_} and {j} {b.op.kind_} both touch {sorted(shared)}"


def overlaps(world: World, step: StepOp) -> Iterator[str]:
    """Pairs of tensors of a step that share bytes though they may be alive together."""
    nodes, before = world.nodes(step), ancestors(step)
    accesses: dict[str, list[int]] = {}
    for n, node in enumerate(nodes):
        for name in node.reads | node.writes:
            accesses.setdefault(name, []).append(n)
    names = sorted(accesses)
    for k, t in enumerate(names):
        for u in names[k + 1 :]:
            if not _share(world.tensors[t], world.tensors[u]):
                continue
            if not any(_precedes(world, nodes, before, accesses, a, b) for a, b in ((t, u), (u, t))):
                yield f"{step.name_}: {t} and {u} share bytes"


def _share(a: TensorOp, b: TensorOp) -> bool:
    assert a.offset_ is not None
    assert b.offset_ is not None
    assert a.slot_ is not None
    assert b.slot_ is not None
    return a.offset_ < b.offset_ + b.slot_ and b.offset_ < a.offset_ + a.slot_


def _precedes(
    world: World, nodes: list[Touch], before: list[set[int]], accesses: dict[str, list[int]], t: str, u: str
) -> bool:
    """All of t before all of u, but for one node that may write u where it reads t."""
    for i in accesses[t]:
        for j in accesses[u]:
            if i in before[j]:
                continue
            if i != j or world.tensors[t].offset_ != world.tensors[u].offset_:
                return False
            kind = KINDS.get(nodes[i].op.kind_)
            pairs = [
                (out, source)
                for out in nodes[i].roles.get((u, True), ())
                for source in nodes[i].roles.get((t, False), ())
            ]
            if kind is None or not any(pair in kind.may_alias for pair in pairs):
                return False
    return True
