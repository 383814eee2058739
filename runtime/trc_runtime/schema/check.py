"""An independent proof that a plan is safe to run.

It shares no code with the planner and looks at bytes, not at intentions:

- every slot lies in its span, is large enough for every column, and no two slots that hold state overlap;
- every range covers exactly the slots of its regions, without gaps or strangers;
- in each step, any two nodes that touch overlapping bytes, one of them writing, are ordered by the DAG;
- a node reads a transient tensor only after some node of the step wrote it, with nothing written over it in
  between, and only in columns where the tensor exists.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trc_runtime.schema.kinds import KINDS, KindRegistry
from trc_runtime.schema.plan import POOL, Node, Plan, RangeRef, Step, TensorRef
from trc_runtime.schema.regions import SLOT_ALIGNMENT, Region, region_range, slot_bytes


@dataclass(frozen=True)
class _Access:
    position: int
    tensor: int
    reads: bool
    writes: bool
    role: str


def check_plan(plan: Plan, kinds: KindRegistry = KINDS) -> list[str]:
    """Every violation in the plan as a sentence; an empty list is the proof."""
    problems = list(_layout_problems(plan))
    if problems:
        return problems  # the rest would only repeat it
    by_region: dict[Region, list[int]] = defaultdict(list)
    for index, tensor in enumerate(plan.tensors):
        by_region[tensor.region].append(index)
    problems += _range_problems(plan, by_region)
    for step in plan.steps:
        problems += _StepCheck(plan, step, by_region, kinds).problems()
    return problems


def _layout_problems(plan: Plan) -> Iterator[str]:
    spans = {s.name: s for s in plan.spans}
    for span in plan.spans:
        if span.offset < 0 or span.bytes < 0 or span.offset + span.bytes > plan.total:
            yield f"span {span.name} leaves the arena of {plan.total} bytes"
    for t in plan.tensors:
        for column, shape in enumerate(t.shapes):
            if shape is not None and t.slot < (need := slot_bytes(shape, t.dtype, t.region)):
                yield f"tensor {t.name}: slot of {t.slot} bytes, column {column} needs {need}"
        if t.offset % SLOT_ALIGNMENT:
            yield f"tensor {t.name}: offset {t.offset} is not a multiple of {SLOT_ALIGNMENT}"
        home = spans.get(POOL) if t.region.transient and plan.mode == "packed" else spans.get(t.region.name)
        if home is None:
            yield f"tensor {t.name}: region {t.region.name} has no span"
        elif not home.offset <= t.offset <= t.offset + t.slot <= home.offset + home.bytes:
            yield f"tensor {t.name} at {t.offset} lies outside span {home.name}"
    fixed = sorted((s for s in plan.spans if s.bytes), key=lambda s: s.offset)
    for a, b in itertools.pairwise(fixed):
        if a.offset + a.bytes > b.offset:
            yield f"spans {a.name} and {b.name} overlap"
    state = sorted((t for t in plan.tensors if not t.region.transient), key=lambda t: t.offset)
    for a, b in itertools.pairwise(state):
        if a.offset + a.slot > b.offset:
            yield f"tensors {a.name} and {b.name} hold state and overlap"


def _range_problems(plan: Plan, by_region: dict[Region, list[int]]) -> Iterator[str]:
    spans = {s.name: s for s in plan.spans}
    seen: set[RangeRef] = set()
    for node in plan.nodes:
        for operand in node.operands:
            if isinstance(ref := operand.ref, TensorRef) or ref in seen:
                continue
            seen.add(ref)
            regions = region_range(ref.first, ref.last)
            if bad := [r.name for r in regions if r.transient]:
                yield f"range {ref.first.name} to {ref.last.name} touches transient regions: {', '.join(bad)}"
                continue
            wanted = sorted((plan.tensors[i].offset, i) for r in regions for i in by_region[r])
            present = [spans[r.name] for r in regions if r.name in spans and spans[r.name].bytes]
            cursor = min((s.offset for s in present), default=0)
            end = max((s.offset + s.bytes for s in present), default=0)
            for offset, index in wanted:
                if offset != cursor:
                    yield (
                        f"range {ref.first.name} to {ref.last.name}: gap or stranger before "
                        f"{plan.tensors[index].name} ({cursor} to {offset})"
                    )
                cursor = offset + plan.tensors[index].slot
            if cursor != end:
                yield f"range {ref.first.name} to {ref.last.name} ends at {end}, its tensors at {cursor}"


class _StepCheck:
    """The checks of one step."""

    def __init__(self, plan: Plan, step: Step, by_region: dict[Region, list[int]], kinds: KindRegistry) -> None:
        self.plan = plan
        self.step = step
        self.kinds = kinds
        self.nodes = [plan.nodes[i] for i in step.nodes]
        self.by_tensor: dict[int, list[_Access]] = defaultdict(list)
        for position, node in enumerate(self.nodes):
            for access in self._accesses(position, node, by_region):
                self.by_tensor[access.tensor].append(access)

    def _accesses(self, position: int, node: Node, by_region: dict[Region, list[int]]) -> Iterator[_Access]:
        for o in node.operands:
            touched: Iterable[int]
            if isinstance(o.ref, TensorRef):
                touched = (o.ref.tensor,)
            else:
                touched = (i for r in region_range(o.ref.first, o.ref.last) for i in by_region[r])
            for index in touched:
                yield _Access(position, index, o.access.reads, o.access.writes, o.name)
        for role, index in node.scalars:
            yield _Access(position, index, True, False, role)

    def problems(self) -> Iterator[str]:
        for position, before in enumerate(self.step.after):
            if any(not 0 <= p < position for p in before):
                yield f"step {self.step.name}: node {position} waits for {before}: not an order"
                return
        self.ancestors = self._ancestor_masks()
        yield from self._column_problems()
        yield from self._race_problems()
        yield from self._written_problems()

    def _ancestor_masks(self) -> list[int]:
        masks: list[int] = []
        for before in self.step.after:
            mask = 0
            for p in before:
                mask |= masks[p] | 1 << p
            masks.append(mask)
        return masks

    def _ordered(self, a: int, b: int) -> bool:
        """Whether position a must finish before position b begins."""
        return bool(self.ancestors[b] >> a & 1)

    def _name(self, position: int) -> str:
        node = self.nodes[position]
        layer = f" of layer '{node.layer}'" if node.layer else ""
        return f"{node.kind}{layer} ({node.bucket.name})"

    def _column_problems(self) -> Iterator[str]:
        for index, accesses in self.by_tensor.items():
            tensor = self.plan.tensors[index]
            for column in self.step.columns:
                if tensor.shapes[column] is None:
                    what = self._name(accesses[0].position)
                    yield f"step {self.step.name}: {what} touches {tensor.name}, which column {column} does not have"

    def _overlaps(self) -> Iterator[tuple[int, int]]:
        """Pairs of different tensors of the step that share bytes."""
        touched = sorted(self.by_tensor, key=lambda i: (self.plan.tensors[i].offset, i))
        active: list[int] = []
        for index in touched:
            begin = self.plan.tensors[index].offset
            active = [a for a in active if self.plan.tensors[a].offset + self.plan.tensors[a].slot > begin]
            for other in active:
                yield other, index
            active.append(index)

    def _race_problems(self) -> Iterator[str]:
        for index, accesses in self.by_tensor.items():
            yield from self._pair_problems(index, index, accesses, accesses)
        for a, b in self._overlaps():
            yield from self._pair_problems(a, b, self.by_tensor[a], self.by_tensor[b])

    def _pair_problems(self, a: int, b: int, left: list[_Access], right: list[_Access]) -> Iterator[str]:
        for x in left:
            for y in right:
                if not (x.writes or y.writes) or (a == b and x.position >= y.position):
                    continue
                if x.position == y.position:
                    if not self._may_alias(x, y):
                        yield (
                            f"step {self.step.name}: {self._name(x.position)} touches {self.plan.tensors[a].name} "
                            f"and {self.plan.tensors[b].name}, which share bytes"
                        )
                elif not (self._ordered(x.position, y.position) or self._ordered(y.position, x.position)):
                    yield (
                        f"step {self.step.name}: {self._name(x.position)} and {self._name(y.position)} race on "
                        f"{self.plan.tensors[a].name}" + ("" if a == b else f" and {self.plan.tensors[b].name}")
                    )

    def _may_alias(self, x: _Access, y: _Access) -> bool:
        out, source = (x, y) if x.writes else (y, x)
        kind = self.kinds.get(self.nodes[x.position].kind)
        same_place = self.plan.tensors[x.tensor].offset == self.plan.tensors[y.tensor].offset
        return same_place and kind is not None and (out.role, source.role) in kind.may_alias

    def _written_problems(self) -> Iterator[str]:
        clobbers: dict[int, list[int]] = defaultdict(list)
        for a, b in self._overlaps():
            clobbers[a] += [y.position for y in self.by_tensor[b] if y.writes]
            clobbers[b] += [x.position for x in self.by_tensor[a] if x.writes]
        for index, accesses in self.by_tensor.items():
            tensor = self.plan.tensors[index]
            if not tensor.region.transient:
                continue
            writers = [x.position for x in accesses if x.writes]
            for read in (x for x in accesses if x.reads):
                before = [w for w in writers if self._ordered(w, read.position)]
                if not before:
                    yield f"step {self.step.name}: {self._name(read.position)} reads {tensor.name} before it is written"
                elif not any(self._survives(w, read.position, clobbers[index]) for w in before):
                    yield (
                        f"step {self.step.name}: what {self._name(read.position)} reads of {tensor.name} "
                        "has been written over"
                    )

    def _survives(self, writer: int, reader: int, clobberers: list[int]) -> bool:
        return all(c == reader or self._ordered(c, writer) or self._ordered(reader, c) for c in clobberers)
