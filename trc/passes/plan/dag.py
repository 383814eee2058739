"""The order of a step's nodes as a DAG. Pure: nodes are what they touch.

An edge stands wherever two nodes touch the same tensor and one writes. Beyond these, *lag* edges keep the nodes
that touch transient memory from drifting apart: cut into segments (runs of one layer), every node comes after all
of the segments two and more before its own. So only neighbouring segments overlap in time, and the packer can
let a tensor take the bytes of another as soon as two segments lie between them.

Where even that could have more bytes alive at once than the linear order ever has, the nodes are put in order: within a
segment, or one segment after the other. That is near the peak only; elsewhere weight gradients, say, stay free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

ROOM = 0.95
"""Nodes may overlap in time where less than this share of the peak is alive even then."""


@dataclass(frozen=True)
class DagNode:
    """A node for the scheduler.

    `segment` is the key of its run: its layer's name. `aliases` are (t, u) where it may write u over t, which it reads.
    """

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    transient: bool
    segment: str | None
    aliases: tuple[tuple[int, int], ...] = ()


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


def order_nodes(nodes: Sequence[DagNode], sizes: Mapping[int, int] | None = None) -> list[tuple[int, ...]]:
    """For each node the positions that must have finished before it, rising.

    `sizes` are the bytes of the transient tensors. Where a result may take the place of an operand that its node reads
    last, the node comes after all who read that. Edges that follow from others are left out where that is cheap to
    see.
    """
    conflicts = _Conflicts()
    ancestry = Ancestry()
    segments = _segments(nodes)
    tight = _tighten(nodes, segments, sizes or {})
    readers: dict[int, list[int]] = {t: [] for t, _ in tight.inherited.values()}
    home = {n: s for s, segment in enumerate(segments) for n in segment}
    done: list[list[int]] = [[] for _ in segments]
    after: list[tuple[int, ...]] = []
    for n, node in enumerate(nodes):
        before = conflicts.visit(n, node)
        for t in node.reads:
            if t in readers:
                readers[t].append(n)
        if node.transient:
            s = home[n]
            for lagged in done[max(s - 3, 0) : max(s - 1, 0)]:
                before.update(lagged)
            if tight.follows[s]:
                before.update(done[s - 1])
            if tight.chained[s]:
                before.update(done[s][-1:])
            if n in tight.inherited:
                before.update(p for p in readers[tight.inherited[n][0]] if p != n)
            done[s].append(n)
        kept: list[int] = []
        prefix, mask = 0, 0
        # The latest first: what comes before it is then seen to follow from it.
        for p in sorted(before, reverse=True):
            ordinal = ancestry.ordinal[p]
            if ordinal < 0 or not contains(prefix, mask, ordinal):
                kept.append(p)
                prefix, mask = ancestry.merge(prefix, mask, p)
        ancestry.append(prefix, mask, node.transient)
        after.append(tuple(sorted(kept)))
    return after


def _segments(nodes: Sequence[DagNode]) -> list[list[int]]:
    """The transient nodes in runs of one layer."""
    segments: list[list[int]] = []
    current: str | None = None
    for n, node in enumerate(nodes):
        if node.transient:
            if not segments or node.segment != current:
                segments.append([])
                current = node.segment
            segments[-1].append(n)
    return segments


@dataclass(frozen=True)
class _Tight:
    """`chained[s]`: the nodes of segment s run one after another; `follows[s]`: after all of the segment before.

    `inherited[n]` is (t, u): node n writes u where t lay.
    """

    chained: list[bool]
    follows: list[bool]
    inherited: dict[int, tuple[int, int]]


def _tighten(nodes: Sequence[DagNode], segments: Sequence[Sequence[int]], sizes: Mapping[int, int]) -> _Tight:
    """Where order is needed so that no more is alive at once than in the linear order."""
    count = len(segments)
    first: dict[int, tuple[int, int]] = {}
    last: dict[int, tuple[int, int]] = {}
    numbered = enumerate((s, n) for s, segment in enumerate(segments) for n in segment)
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    places: dict[int, tuple[int, int]] = {}
    for ordinal, (s, n) in numbered:
        places[n] = ordinal, s
        for t in (*nodes[n].reads, *nodes[n].writes):
            if t in sizes:
                begins.setdefault(t, n)
                ends[t] = n
    inherited, owner = _inherit(nodes, begins, ends, sizes)
    for t, n in begins.items():
        first[owner.get(t, t)] = min(first.get(owner.get(t, t), places[n]), places[n])
    for t, n in ends.items():
        last[owner.get(t, t)] = max(last.get(owner.get(t, t), places[n]), places[n])
    # Not the peak itself: packing needs some room too.
    enough = ROOM * max(_alive(first, last, sizes, 0, len(places)), default=0)
    within = _alive(first, last, sizes, 1, count)
    begun = [0] * count
    for t, (_, s) in first.items():
        begun[s] += sizes[t]
    return _Tight(
        [alive > enough for alive in within],
        [s > 0 and within[s - 1] + begun[s] > enough for s in range(count)],
        inherited,
    )


def _inherit(
    nodes: Sequence[DagNode], begins: Mapping[int, int], ends: Mapping[int, int], sizes: Mapping[int, int]
) -> tuple[dict[int, tuple[int, int]], dict[int, int]]:
    """By node the (t, u) where u, first written there, takes the place of t, last read there; by u the chain's head."""
    inherited: dict[int, tuple[int, int]] = {}
    owner: dict[int, int] = {}
    for n, node in enumerate(nodes):
        fit = [(t, u) for t, u in node.aliases if t != u and ends.get(t) == begins.get(u) == n and begins[t] < n]
        if fit:
            # The kind's order decides between operands of one size, as it does when they are placed.
            t, u = max(fit, key=lambda pair: sizes[pair[0]])
            inherited[n] = t, u
            owner[u] = owner.get(t, t)
    return inherited, owner


def _alive(
    first: Mapping[int, tuple[int, int]],
    last: Mapping[int, tuple[int, int]],
    sizes: Mapping[int, int],
    scale: int,
    count: int,
) -> list[int]:
    """The bytes alive at each place, by ordinals (`scale` 0) or by segments (1)."""
    change = [0] * (count + 1)
    for t, begin in first.items():
        change[begin[scale]] += sizes[t]
        change[last[t][scale] + 1] -= sizes[t]
    return list(accumulate(change[:-1]))


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
