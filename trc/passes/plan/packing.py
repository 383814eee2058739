"""Placing transient tensors in one pool. Pure: tensors are sizes and accesses.

Two tensors may share bytes if in every step where both occur all accesses of one come before all of the other.
A tensor that a node writes may also take exactly the place of one that the node reads last, where its kind says that
this is safe; such chains are one *block* here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trc.passes.plan.dag import Ancestry

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

NEVER = 1 << 62
"""Beginning of a tensor that does not occur in a step."""


@dataclass(frozen=True)
class PackStep:
    """What a step means for the packer.

    `ancestry` has one entry a node. `accesses[t]` are the nodes that touch tensor t, rising. `aliases` are, in order,
    (node, t, u): the node reads t and writes u, and the two may occupy the same bytes.
    """

    ancestry: Ancestry
    accesses: Mapping[int, Sequence[int]]
    aliases: Mapping[tuple[int, int, int], None]


@dataclass(frozen=True)
class Packing:
    """Offsets of the tensors in the pool, the pool's size, and what no packing can do without."""

    offsets: list[int]
    size: int
    bound: int


def pack(sizes: Sequence[int], steps: Sequence[PackStep]) -> Packing:
    """Place tensors 0 to n-1 of these sizes (bytes). Deterministic."""
    block_of = merge_aliases(len(sizes), steps)
    count = max(block_of, default=-1) + 1
    extent = np.zeros(count, np.int64)
    np.maximum.at(extent, np.array(block_of, np.int64), np.array(sizes, np.int64))
    lives = [_Lives(count, block_of, step) for step in steps]
    bound = max((life.largest(extent) for life in lives), default=0)
    best: Ints | None = None
    best_size = -1
    for order in _orders(extent, lives):
        offsets = _place(order, extent, lives)
        size = int((offsets + extent).max(initial=0))
        if best is None or size < best_size:
            best, best_size = offsets, size
        if size == bound:
            break
    assert best is not None
    return Packing([int(best[b]) for b in block_of], best_size, bound)


def merge_aliases(count: int, steps: Sequence[PackStep]) -> list[int]:
    """The block of each tensor: chains of tensors that take over each other's place."""
    occurs: list[set[int]] = [set() for _ in range(count)]
    for s, step in enumerate(steps):
        for t in step.accesses:
            occurs[t].add(s)
    heir: dict[int, int] = {}  # t -> the tensor that takes its place
    taken: set[int] = set()
    for step in steps:
        for _, t, u in step.aliases:
            if t in heir or u in taken or t == u or occurs[t] != occurs[u]:
                continue
            if all(_takes_over(other, t, u) for s, other in enumerate(steps) if s in occurs[t]):
                heir[t] = u
                taken.add(u)
    blocks = [-1] * count
    number = 0
    for t in range(count):
        if t in taken:
            continue
        member: int | None = t
        while member is not None:
            blocks[member] = number
            member = heir.get(member)
        number += 1
    return blocks


def _takes_over(step: PackStep, t: int, u: int) -> bool:
    """Whether one node both reads t last and writes u first, and the step's record allows the alias."""
    last, first = step.accesses[t][-1], step.accesses[u][0]
    if last != first or (last, t, u) not in step.aliases:
        return False
    ancestry = step.ancestry
    before = all(ancestry.before(ancestry.ordinal[a], last) for a in step.accesses[t][:-1])
    return before and all(ancestry.before(ancestry.ordinal[last], b) for b in step.accesses[u][1:])


class _Lives:
    """When blocks live in one step, in ordinals of the transient nodes.

    `first` and `last` accesses; `after` is the ordinal below which everything is over before the block's first
    access, whatever the order of execution: a block whose last access lies below it may be written over.
    """

    def __init__(self, count: int, block_of: Sequence[int], step: PackStep) -> None:
        self.first: Ints = np.full(count, NEVER, np.int64)
        self.last: Ints = np.full(count, -1, np.int64)
        self.after: Ints = np.full(count, NEVER, np.int64)
        nodes: dict[int, list[int]] = defaultdict(list)
        for t, accesses in step.accesses.items():
            nodes[block_of[t]] += accesses
        ancestry = step.ancestry
        ending: dict[int, list[int]] = defaultdict(list)
        for block, accesses in nodes.items():
            ordinals = [ancestry.ordinal[a] for a in accesses]
            self.first[block], self.last[block] = min(ordinals), max(ordinals)
            self.after[block] = min(ancestry.prefix[a] for a in accesses)
            ending[max(ordinals)].append(block)
        self.exempt: dict[int, list[int]] = defaultdict(list)
        for block in nodes:
            self._exempt(block, nodes, ending, ancestry)

    def _exempt(
        self, block: int, nodes: Mapping[int, Sequence[int]], ending: Mapping[int, Sequence[int]], ancestry: Ancestry
    ) -> None:
        """Blocks that end close before this one begins: look at the accesses one by one."""
        begin, sure = int(self.first[block]), int(self.after[block])
        for ordinal in range(sure, begin):
            for other in ending.get(ordinal, ()):
                ends = [ancestry.ordinal[a] for a in nodes[other] if ancestry.ordinal[a] >= sure]
                if all(ancestry.before(a, b) for b in nodes[block] for a in ends):
                    self.exempt[block].append(other)
                    self.exempt[other].append(block)

    def conflicts(self, block: int) -> Bools:
        """With which blocks this one may live at the same time."""
        row = (self.last >= self.after[block]) & (self.last[block] >= self.after)
        if block in self.exempt:
            row[self.exempt[block]] = False
        return row

    def largest(self, extent: Ints) -> int:
        """The largest sum of the blocks alive at one node, in the linear order: all of these conflict."""
        alive = self.last >= 0
        change = np.zeros(int(self.last.max(initial=0)) + 2, np.int64)
        np.add.at(change, self.first[alive], extent[alive])
        np.subtract.at(change, self.last[alive] + 1, extent[alive])
        return int(np.cumsum(change).max(initial=0))


def _orders(extent: Ints, lives: Sequence[_Lives]) -> list[Ints]:
    """The orders of placement that are tried. Ties go to the lower block."""
    length = np.zeros_like(extent)
    begin = np.full_like(extent, NEVER)
    for life in lives:
        alive = life.last >= 0
        length[alive] = np.maximum(length[alive], (life.last - life.first)[alive])
        begin = np.minimum(begin, life.first)
    return [np.lexsort((begin, -extent, -length)), np.lexsort((begin, -length, -extent)), np.lexsort((-extent, begin))]


def _place(order: Ints, extent: Ints, lives: Sequence[_Lives]) -> Ints:
    """First fit: each block takes the lowest place that none of the placed ones it conflicts with has."""
    offsets: Ints = np.zeros(len(extent), np.int64)
    ends: Ints = np.zeros(len(extent), np.int64)
    placed: Bools = np.zeros(len(extent), np.bool_)
    for block in order:
        row = np.zeros(len(extent), np.bool_)
        for life in lives:
            if life.last[block] >= 0:
                row |= life.conflicts(int(block))
        row &= placed
        size = extent[block]
        offsets[block] = _lowest_gap(offsets[row], ends[row], int(size))
        ends[block] = offsets[block] + size
        placed[block] = True
    return offsets


def _lowest_gap(begins: Ints, ends: Ints, size: int) -> int:
    """The lowest offset at which `size` bytes are free of the given intervals."""
    if not len(begins):
        return 0
    order = np.argsort(begins, kind="stable")
    begins = begins[order]
    reach = np.maximum.accumulate(ends[order])
    free_from = np.concatenate(([0], reach))
    room = np.concatenate((begins, [NEVER])) - free_from
    return int(free_from[int(np.argmax(room >= size))])
