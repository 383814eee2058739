"""The order of a step's nodes as a DAG. Pure: nodes are what they touch.

An edge stands wherever two nodes touch the same tensor and one writes. Beyond these, *lag* edges keep the nodes
that touch transient memory from drifting apart: cut into segments (runs of one layer), every node comes after all
of the segments two and more before its own. So only neighbouring segments overlap in time, and the packer can
let a tensor take the bytes of another as soon as two segments lie between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class DagNode:
    """A node for the scheduler. `segment` is the key of its run: its layer's name."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    transient: bool
    segment: str | None


class Ancestry:
    """For each node the set of transient nodes before it, exactly and cheaply.

    Transient nodes are counted by ordinals. A node's set is a `prefix` (all ordinals below it) and a `mask` of those
    from there on. Because of the lag edges masks stay a few bits long.
    """

    def __init__(self) -> None:
        self.prefix: list[int] = []
        self.mask: list[int] = []
        self.ordinal: list[int] = []
        self._count = 0

    def add(self, after: Iterable[int], transient: bool) -> int:
        """Append a node that comes after others; returns its place."""
        prefix, mask = 0, 0
        for p in after:
            prefix, mask = self.merge(prefix, mask, p)
        return self.append(prefix, mask, transient)

    def append(self, prefix: int, mask: int, transient: bool) -> int:
        """Append a node whose set is known."""
        self.prefix.append(prefix)
        self.mask.append(mask)
        self.ordinal.append(self._count if transient else -1)
        self._count += transient
        return len(self.prefix) - 1

    def merge(self, prefix: int, mask: int, node: int) -> tuple[int, int]:
        """A set with a node and all that is before the node added."""
        other, bits, ordinal = self.prefix[node], self.mask[node], self.ordinal[node]
        top = max(prefix, other)
        mask = mask >> (top - prefix) | bits >> (top - other)
        if ordinal >= top:
            mask |= 1 << (ordinal - top)
        if mask & 1:
            run = (~mask & -~mask).bit_length() - 1  # trailing ones
            top += run
            mask >>= run
        return top, mask

    def before(self, ordinal: int, node: int) -> bool:
        """Whether the transient node of that ordinal comes before a node."""
        return contains(self.prefix[node], self.mask[node], ordinal)


def contains(prefix: int, mask: int, ordinal: int) -> bool:
    """Whether a set holds an ordinal."""
    return ordinal < prefix or bool(mask >> (ordinal - prefix) & 1)


def order_nodes(nodes: Sequence[DagNode]) -> list[tuple[int, ...]]:
    """For each node the positions that must have finished before it, rising.

    Edges that follow from others are left out where that is cheap to see.
    """
    conflicts = _Conflicts()
    ancestry = Ancestry()
    segments: list[list[int]] = []
    current: str | None = None
    after: list[tuple[int, ...]] = []
    for n, node in enumerate(nodes):
        kept: list[int] = []
        prefix, mask = 0, 0
        # The latest first: what comes before it is then seen to follow from it.
        for p in sorted(conflicts.visit(n, node), reverse=True):
            ordinal = ancestry.ordinal[p]
            if ordinal < 0 or not contains(prefix, mask, ordinal):
                kept.append(p)
                prefix, mask = ancestry.merge(prefix, mask, p)
        if node.transient:
            if not segments or node.segment != current:
                segments.append([])
                current = node.segment
            for lagged in segments[-3:-2] + segments[-4:-3]:
                for p in reversed(lagged):
                    if not contains(prefix, mask, ancestry.ordinal[p]):
                        kept.append(p)
                        prefix, mask = ancestry.merge(prefix, mask, p)
            segments[-1].append(n)
        ancestry.append(prefix, mask, node.transient)
        after.append(tuple(sorted(kept)))
    return after


class _Conflicts:
    """The nodes that touched the same tensors before, one side writing."""

    def __init__(self) -> None:
        self._writer: dict[int, int] = {}
        self._readers: dict[int, list[int]] = {}

    def visit(self, n: int, node: DagNode) -> set[int]:
        """The nodes that node n must come after; n is then part of the history."""
        before: set[int] = set()
        writer, readers = self._writer, self._readers
        for t in node.reads:
            if t in writer:
                before.add(writer[t])
        for t in node.writes:
            if t in writer:
                before.add(writer[t])
            if t in readers:
                before.update(readers[t])
        for t in node.reads:
            readers.setdefault(t, []).append(n)
        for t in node.writes:
            writer[t] = n
            readers[t] = []
        before.discard(n)
        return before
