"""Where the bytes of a plan go: by region, by category, by layer, and at the peak."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trc_runtime.schema.codec import Json
from trc_runtime.schema.plan import Node, Plan, Step, TensorRef
from trc_runtime.schema.regions import Region

_CATEGORIES = {
    "B": "running statistics",
    "W": "parameters",
    "E": "moving averages",
    "A": "half parameters",
    "G": "gradients",
    "M": "optimizer state",
    "V": "optimizer state",
    "N": "optimizer state",
    "I": "input buffers",
    "D": "resident data",
    "F": "activations",
    "S": "scalars and tables",
    "T": "temporaries",
    "R": "results",
}


def category_of(region: Region) -> str:
    """What a region's bytes are for, in a word that a user knows."""
    if region is Region.S_MASK:
        return "masks"
    if region in (Region.F_GRAD_SLOT_FP32, Region.F_GRAD_SLOT_FP16):
        return "activation gradients"
    if region is Region.T_WORKSPACE:
        return "workspaces"
    return _CATEGORIES[region.name[0]]


@dataclass(frozen=True)
class Peak:
    """The moment when the live transient tensors are largest."""

    bytes: int
    step: str
    kind: str
    layer: str | None
    live: tuple[tuple[str, int], ...]
    """(tensor, slot bytes), largest first."""


@dataclass(frozen=True)
class MemoryReport:
    """The bytes of a plan; `str()` is a table for people, `to_json()` for programs."""

    name: str
    mode: str
    total: int
    regions: tuple[tuple[str, int, int], ...]
    """(span name, offset, bytes), in order of address."""
    categories: tuple[tuple[str, int], ...]
    """(category, bytes of slots); transient categories count each slot in full, before any sharing."""
    layers: tuple[tuple[str, int], ...]
    """(layer, bytes of slots), largest first."""
    transient: int
    """Bytes that the transient tensors occupy in the arena."""
    unshared: int
    """Bytes that they would occupy if none shared with another."""
    peak: Peak | None

    @property
    def ratio(self) -> float:
        """Transient bytes in the arena over the largest sum of live tensors (1.0 is perfect)."""
        return self.transient / self.peak.bytes if self.peak and self.peak.bytes else 1.0

    def to_json(self) -> dict[str, Json]:
        """The report as a JSON object."""
        peak: Json = None
        if self.peak:
            peak = {
                "bytes": self.peak.bytes,
                "step": self.peak.step,
                "operation": self.peak.kind,
                "layer": self.peak.layer,
                "live": dict[str, Json](self.peak.live),
            }
        return {
            "name": self.name,
            "mode": self.mode,
            "total": self.total,
            "regions": {name: {"offset": offset, "bytes": size} for name, offset, size in self.regions},
            "categories": dict[str, Json](self.categories),
            "layers": dict[str, Json](self.layers),
            "transient": {"bytes": self.transient, "unshared": self.unshared, "ratio": round(self.ratio, 4)},
            "peak": peak,
        }

    def __str__(self) -> str:
        lines = [f"memory of {self.name} ({self.mode}): {self.total:,} bytes", "", "category"]
        lines += [f"  {name:<24}{size:>16,}" for name, size in self.categories]
        lines += [
            "",
            f"transient tensors: {self.transient:,} bytes hold {self.unshared:,} bytes of slots",
        ]
        if self.peak:
            layer = f" of {self.peak.layer}" if self.peak.layer else ""
            lines.append(
                f"peak: {self.peak.bytes:,} bytes live in {self.peak.step} at {self.peak.kind}{layer}; "
                f"ratio to this lower bound {self.ratio:.3f}"
            )
            lines += [f"  {name:<40}{size:>16,}" for name, size in self.peak.live[:8]]
        lines += ["", "largest layers"]
        lines += [f"  {name:<24}{size:>16,}" for name, size in self.layers[:8]]
        lines += ["", f"{'region':<26}{'offset':>14}{'bytes':>16}"]
        lines += [f"{name:<26}{offset:>14,}{size:>16,}" for name, offset, size in self.regions if size]
        return "\n".join(lines)


def memory_report(plan: Plan) -> MemoryReport:
    """Account for every byte of a plan."""
    categories: dict[str, int] = {}
    layers: dict[str, int] = {}
    for t in plan.tensors:
        categories[category_of(t.region)] = categories.get(category_of(t.region), 0) + t.slot
        if t.layer is not None:
            layers[t.layer] = layers.get(t.layer, 0) + t.slot
    transient = [t for t in plan.tensors if t.region.transient]
    begin = min((t.offset for t in transient), default=0)
    end = max((t.offset + t.slot for t in transient), default=0)
    unshared = sum(t.slot for t in transient)
    peaks = [p for p in (_peak(plan, step) for step in plan.steps) if p]
    return MemoryReport(
        name=plan.name,
        mode=plan.mode,
        total=plan.total,
        regions=tuple((s.name, s.offset, s.bytes) for s in plan.spans),
        categories=tuple(categories.items()),
        layers=tuple(sorted(layers.items(), key=lambda item: (-item[1], item[0]))),
        transient=end - begin if plan.mode == "packed" else unshared,
        unshared=unshared,
        peak=max(peaks, key=lambda p: p.bytes, default=None),
    )


def _tensors_of(node: Node) -> Iterator[int]:
    for operand in node.operands:
        if isinstance(operand.ref, TensorRef):
            yield operand.ref.tensor


def _peak(plan: Plan, step: Step) -> Peak | None:
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for position, index in enumerate(step.nodes):
        for tensor in _tensors_of(plan.nodes[index]):
            if plan.tensors[tensor].region.transient:
                first.setdefault(tensor, position)
                last[tensor] = position
    if not first:
        return None
    change = [0] * (len(step.nodes) + 1)
    for tensor, position in first.items():
        change[position] += plan.tensors[tensor].slot
        change[last[tensor] + 1] -= plan.tensors[tensor].slot
    shared = _written_over(plan, first, last)
    live, best, where = 0, -1, 0
    for position in range(len(step.nodes)):
        live += change[position]
        if live - shared.get(position, 0) > best:
            best, where = live - shared.get(position, 0), position
    alive = [plan.tensors[t] for t in first if first[t] <= where <= last[t]]
    node = plan.nodes[step.nodes[where]]
    names = tuple(sorted(((t.name, t.slot) for t in alive), key=lambda item: (-item[1], item[0])))
    return Peak(best, step.name, node.kind, node.layer, names)


def _written_over(plan: Plan, first: dict[int, int], last: dict[int, int]) -> dict[int, int]:
    """Bytes a position that count once for two: a result that its node writes over an operand used there last."""
    dying = {(last[t], plan.tensors[t].offset): plan.tensors[t].slot for t in last}
    shared: dict[int, int] = {}
    for tensor, position in first.items():
        under = dying.get((position, plan.tensors[tensor].offset))
        if under is not None and last[tensor] != position:
            shared[position] = shared.get(position, 0) + min(under, plan.tensors[tensor].slot)
    return shared
