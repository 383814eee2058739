"""What one launch runs: steps side by side as one DAG of nodes, and where each node's scratch memory lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from trc_runtime.cuda.calls import CudnnCall, Definition, DriverError
from trc_runtime.schema.plan import Node, Plan, RangeRef, Step
from trc_runtime.schema.regions import SLOT_ALIGNMENT, Region, align_up

FLAG = "has_nan"
"""The tensor that says whether a step is skipped."""


@dataclass(frozen=True)
class Order:
    """Positions of a launch. `items[i]` is (index in plan.nodes, index in plan.captures); `after[i]` points backwards.

    `results` are the positions that write the batch's results (loss, top-1, top-5) or the NaN flag; empty where the
    launch has none.
    """

    name: str
    items: tuple[tuple[int, int], ...]
    after: tuple[tuple[int, ...], ...]
    results: tuple[int, ...]

    @cached_property
    def ancestors(self) -> list[int]:
        """For each position the bit mask of those that must have finished before it."""
        masks: list[int] = []
        for before in self.after:
            mask = 0
            for p in before:
                mask |= masks[p] | 1 << p
            masks.append(mask)
        return masks

    def ordered(self, a: int, b: int) -> bool:
        """Whether one of two positions must finish before the other begins."""
        return bool(self.ancestors[b] >> a & 1 or self.ancestors[a] >> b & 1)

    @property
    def key(self) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, ...], ...]]:
        """What makes two launches the same."""
        return self.items, self.after


def compose(plan: Plan, parts: Sequence[tuple[Step, int]]) -> Order:
    """Steps in their columns, side by side in one launch: nothing orders one step's nodes before another's.

    ValueError for a column that a step does not run in, DriverError where the atlas has no capture for a bucket.
    """
    items: list[tuple[int, int]] = []
    after: list[tuple[int, ...]] = []
    results: list[int] = []
    for step, column in parts:
        first = len(items)
        if column not in step.columns:
            raise ValueError(f"step '{step.name}' does not run in column {column}; it runs in {list(step.columns)}")
        for position, (index, before) in enumerate(zip(step.nodes, step.after, strict=True)):
            node = plan.nodes[index]
            capture = plan.atlas[column][node.bucket.value]
            if capture < 0:
                raise DriverError(
                    f"step '{step.name}' in column {column} uses {node.bucket.name}, which was not captured"
                )
            items.append((index, capture))
            after.append(tuple(first + b for b in before))
            if _writes_results(plan, node):
                results.append(first + position)
    return Order(" beside ".join(s.name for s, _ in parts), tuple(items), tuple(after), tuple(results))


def companion(step: str) -> str | None:
    """The step that may run beside another in one launch: the transfer into the buffer that the other does not read.

    None for a step that runs alone. The null driver proves these pairs, and only these, free of races.
    """
    other = {"a": "transfer_b", "b": "transfer_a"}.get(step.rpartition("_")[2])
    return other if step.startswith(("train_", "infer_")) else None


def check_pair(step: str, beside: str) -> None:
    """ValueError for two steps that cannot share a launch."""
    if beside != (wanted := companion(step)):
        raise ValueError(
            f"step '{beside}' cannot run beside '{step}': nothing would order the two; "
            + (f"{wanted} can" if wanted else "it runs alone")
        )


def _writes_results(plan: Plan, node: Node) -> bool:
    for operand in node.operands:
        if not operand.access.writes:
            continue
        if isinstance(ref := operand.ref, RangeRef):
            if ref.first.ordinal <= Region.R_RESULT.ordinal <= ref.last.ordinal:
                return True
        elif plan.tensors[ref.tensor].region is Region.R_RESULT or plan.tensors[ref.tensor].name == FLAG:
            return True
    return False


def result_tensors(plan: Plan) -> list[int]:
    """Indices of the tensors that hold a batch's results and of the NaN flag."""
    return [i for i, t in enumerate(plan.tensors) if t.region is Region.R_RESULT or t.name == FLAG]


def all_orders(plan: Plan) -> list[Order]:
    """Every step in every column, each different launch once, and the launches that pair a step with a transfer."""
    steps = {s.name: s for s in plan.steps}
    found: dict[object, Order] = {}
    for step in plan.steps:
        for column in step.columns:
            order = compose(plan, [(step, column)])
            found.setdefault(order.key, order)
            if (other := companion(step.name)) in steps:
                for transfer_column in steps[other].columns:
                    paired = compose(plan, [(step, column), (steps[other], transfer_column)])
                    found.setdefault(paired.key, paired)
    return list(found.values())


def place_scratch(plan: Plan, sizes: Mapping[int, int]) -> tuple[dict[int, int], int]:
    """Offsets for the scratch memory of nodes (index to bytes), and the bytes that all need together.

    Two nodes share bytes only if the DAG orders them in every step that has both. First fit, largest first.
    """
    wanted = sorted((i for i, size in sizes.items() if size > 0), key=lambda i: (-sizes[i], i))
    conflicts = _unordered_pairs(plan, set(wanted))
    placed: dict[int, int] = {}
    end = 0
    for index in wanted:
        size = align_up(sizes[index], SLOT_ALIGNMENT)
        taken = sorted(
            (placed[o], placed[o] + align_up(sizes[o], SLOT_ALIGNMENT)) for o in conflicts.get(index, ()) if o in placed
        )
        offset = 0
        for begin, stop in taken:
            if begin - offset >= size:
                break
            offset = max(offset, stop)
        placed[index] = offset
        end = max(end, offset + size)
    return placed, end


def _unordered_pairs(plan: Plan, nodes: set[int]) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for step in plan.steps:
        order = Order(step.name, tuple((n, 0) for n in step.nodes), step.after, ())
        here = [p for p, n in enumerate(step.nodes) if n in nodes]
        for i, a in enumerate(here):
            for b in here[i + 1 :]:
                if not order.ordered(a, b):
                    found.setdefault(step.nodes[a], set()).add(step.nodes[b])
                    found.setdefault(step.nodes[b], set()).add(step.nodes[a])
    return found


def scratch_sizes(definitions: Sequence[Definition], workspaces: Mapping[str, int]) -> dict[int, int]:
    """Bytes of scratch that each node needs: its own, rounded up, and behind it the largest workspace of its graphs."""
    sizes: dict[int, int] = {}
    for definition in definitions:
        for index, node in definition.nodes.items():
            need = [
                workspaces.get(c.key, 0)
                for c in node.calls
                if isinstance(c, CudnnCall) and "workspace" not in c.bindings
            ]
            size = align_up(node.scratch, SLOT_ALIGNMENT) + max(need, default=0)
            sizes[index] = max(sizes.get(index, 0), size)
    return sizes
