"""Placing transient tensors in one pool. Pure: tensors are sizes and accesses.

Two tensors may share bytes if in every step where both occur all accesses of one come before all of the other.
A tensor that a node writes may also take exactly the place of one that the node reads last, where its kind says that
this is safe; such chains are one *block* here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from trc.passes.plan.dag import Ancestry

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

NEVER = 1 << 62
"""Beginning of a tensor that does not occur in a step."""

PLAIN_ORDERS = 3
GOOD_ENOUGH = 1.001
"""The plain orders end at this multiple of the bound."""

LEARNT_ENOUGH = 1.01
"""The search that follows them ends at this one."""

LEARNING_STEP = 0.15
"""How far a block in trouble moves forward at most, as a share of all blocks."""

LEARNING_ROUNDS = 12
"""Attempts that each plain order learns from, at most."""

LARGE = 256
"""A block is large if it is more than this part of the bound."""

SEARCH = 20_000
"""Blocks placed in the whole search, at most: half a second. Large networks have a short one and need none."""


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
    neighbours = _Neighbours(lives)
    best: Ints = np.zeros(count, np.int64)
    best_size = -1
    for attempt, order in enumerate(_attempts(extent, lives, neighbours, bound)):
        offsets = _place(order.blocks, extent, neighbours)
        ends = offsets + extent
        size = int(ends.max(initial=0))
        if best_size < 0 or size < best_size:
            best, best_size = offsets, size
        if best_size <= bound * (GOOD_ENOUGH if attempt < PLAIN_ORDERS - 1 else LEARNT_ENOUGH):
            break
        order.learn(ends)
    return Packing([int(best[b]) for b in block_of], max(best_size, 0), bound)


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

    def largest(self, extent: Ints) -> int:
        """The largest sum of the blocks alive at one node, in the linear order: all of these conflict."""
        alive = self.last >= 0
        change = np.zeros(int(self.last.max(initial=0)) + 2, np.int64)
        np.add.at(change, self.first[alive], extent[alive])
        np.subtract.at(change, self.last[alive] + 1, extent[alive])
        return int(np.cumsum(change).max(initial=0))


class _Neighbours:
    """For each block those that may live at the same time in some step; found when first asked for."""

    def __init__(self, lives: Sequence[_Lives]) -> None:
        self._lives = lives
        self._rows: dict[int, Ints] = {}

    def __getitem__(self, block: int) -> Ints:
        """The blocks, rising."""
        found = self._rows.get(block)
        if found is None:
            row = np.zeros(0, np.bool_)
            for life in self._lives:
                # A block that is not in the step has last -1 and after NEVER, and so no neighbour here.
                here = (life.last >= life.after[block]) & (life.last[block] >= life.after)
                if block in life.exempt:
                    here[life.exempt[block]] = False
                row = here | row if len(row) else here
            found = self._rows[block] = np.flatnonzero(row)
        return found


class _Order:
    """An order of placement that learns: blocks that ended above the bound move forward in the next attempt."""

    def __init__(self, blocks: Ints, bound: int) -> None:
        self.blocks = blocks
        self.bound = bound
        self.best: tuple[int, Ints] = (NEVER, blocks)
        self._tie = np.argsort(blocks, kind="stable")
        self._rank: NDArray[np.float64] = self._tie.astype(np.float64)

    def learn(self, ends: Ints) -> None:
        """Move the blocks that end above the bound forward, the further the more they exceed it."""
        self.best = min(self.best, (int(ends.max(initial=0)), self.blocks), key=lambda found: found[0])
        excess = np.maximum(ends - self.bound, 0)
        step = max(3.0, len(ends) * LEARNING_STEP)
        self._rank = self._rank - step * excess / max(1, int(excess.max(initial=0)))
        self.blocks = np.lexsort((self._tie, self._rank))


def _attempts(extent: Ints, lives: Sequence[_Lives], neighbours: _Neighbours, bound: int) -> Iterator[_Order]:
    """Orders to try until one is good enough: three plain ones, what they learn, then better ones of the large blocks.

    Ties go to the lower block.
    """
    length = np.zeros_like(extent)
    begin = np.full_like(extent, NEVER)
    for life in lives:
        alive = life.last >= 0
        length[alive] = np.maximum(length[alive], (life.last - life.first)[alive])
        begin = np.minimum(begin, life.first)
    keys = (begin, -extent, -length), (begin, -length, -extent), (-extent, begin)
    orders = [_Order(np.lexsort(key), bound) for key in keys]
    yield from orders
    for order in orders:
        for _ in range(min(LEARNING_ROUNDS, SEARCH // (2 * len(orders) * len(extent)))):
            yield order
    for order in sorted(orders, key=lambda order: order.best[0]):
        yield _Order(_climb(order.best[1], extent, neighbours, bound, SEARCH // (2 * len(orders))), bound)


def _climb(blocks: Ints, extent: Ints, neighbours: _Neighbours, bound: int, work: int) -> Ints:
    """Reorder the large blocks by single moves, each kept unless it makes things worse, and put the small ones last.

    A move takes a block that ended above the bound to an earlier place. `work` is how many blocks may be placed.
    """
    large = extent[blocks] * LARGE > bound
    kept, small = blocks[large], blocks[~large]
    if not len(kept):
        return blocks
    random = Random(0)
    ends = _place(kept, extent, neighbours) + extent
    best = int(ends[kept].max())
    for _ in range(work // len(kept)):
        if best <= bound:
            break
        block = random.choice(kept[ends[kept] > bound].tolist())
        place = int(np.flatnonzero(kept == block)[0])
        target = random.randrange(place + 1)
        moved = np.concatenate((kept[:target], [block], kept[target:place], kept[place + 1 :]))
        found = _place(moved, extent, neighbours) + extent
        size = int(found[kept].max())
        if size <= best:
            kept, ends, best = moved, found, size
    return np.concatenate((kept, small))


def _place(order: Ints, extent: Ints, neighbours: _Neighbours) -> Ints:
    """First fit: each block takes the lowest place that none of the placed ones it conflicts with has."""
    offsets: Ints = np.zeros(len(extent), np.int64)
    ends: Ints = np.zeros(len(extent), np.int64)
    placed: Bools = np.zeros(len(extent), np.bool_)
    for block in order.tolist():
        near = neighbours[block]
        near = near[placed[near]]
        size = int(extent[block])
        offsets[block] = offset = _lowest_gap(offsets[near], ends[near], size)
        ends[block] = offset + size
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
