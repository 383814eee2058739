"""What must hold across the operations of memplan."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from trc.dialects.attributes import hint
from trc.dialects.memplan.plan import PlanOp
from trc.dialects.memplan.region import RegionOp
from trc.dialects.memplan.spec import VARIANTS, SpecOp
from trc.dialects.memplan.tensor import TensorOp
from trc.dialects.table import Finding, Table
from trc_runtime.schema.dtypes import Precision
from trc_runtime.schema.plan import POOL
from trc_runtime.schema.regions import dtype_of


def memplan_findings(table: Table) -> Iterator[Finding]:
    """All problems across operations, each at the operation it is about."""
    yield from _specs(table)
    yield from _element_types(table)
    yield from _plans(table)
    yield from _spans(table)
    yield from _places(table)


def _specs(table: Table) -> Iterator[Finding]:
    specs = table.all(SpecOp)
    if not specs:
        return
    first = specs[0]
    missing = [f"@{name}" for name in VARIANTS if table.get(name, SpecOp) is None]
    if missing:
        yield first, f"the module has {len(specs)} of the {len(VARIANTS)} specs; {', '.join(missing)} is missing"
    for spec in specs[1:]:
        if spec.precision_ is not first.precision_:
            mine, other = spec.precision_.keyword, first.precision_.keyword
            yield spec, f"variant @{spec.name_} has the precision {mine}, but @{first.name_} has {other}"


def _element_types(table: Table) -> Iterator[Finding]:
    specs = table.all(SpecOp)
    if not specs:
        return
    precision: Precision = specs[0].precision_
    for tensor in table.all(TensorOp):
        region, dtype = tensor.region_, tensor.dtype_
        try:
            wanted = dtype_of(region, precision)
        except ValueError as err:
            yield tensor, f"tensor @{tensor.name_}: {err}"
            continue
        if dtype is not wanted:
            yield (
                tensor,
                f"tensor @{tensor.name_} is {dtype.value}, but region {region.name} holds {wanted.value} "
                f"under {precision.keyword}",
            )


def _plans(table: Table) -> Iterator[Finding]:
    plans = table.all(PlanOp)
    for plan in plans[1:]:
        yield plan, f"second plan of the module; the first is that of @{plans[0].name_}"
    models = {name for name, op in table.symbols.items() if op.name == "arch.model"}
    for plan in plans:
        if models and plan.name_ not in models:
            yield plan, f"there is no arch.model @{plan.name_}{hint(plan.name_, models)}"


def _spans(table: Table) -> Iterator[Finding]:
    regions = table.all(RegionOp)
    seen: set[str] = set()
    for region in regions:
        if region.name_ in seen:
            yield region, f"region {region.name_} has two spans"
        seen.add(region.name_)
    ordered = sorted((r for r in regions if r.bytes_), key=lambda r: r.offset_)
    for before, after in pairwise(ordered):
        end = before.offset_ + before.bytes_
        if after.offset_ < end:
            yield (
                after,
                f"region {after.name_} begins at {after.offset_}, before region {before.name_} ends at {end}",
            )
    for plan in table.all(PlanOp):
        total = plan.total_
        for region in ordered:
            end = region.offset_ + region.bytes_
            if total is not None and end > total:
                yield region, f"region {region.name_} ends at {end}, after the arena's {total} bytes"


def _places(table: Table) -> Iterator[Finding]:
    spans = {region.name_: region for region in table.all(RegionOp)}
    if not spans:
        return
    packed = any(plan.mode_ == "packed" for plan in table.all(PlanOp))
    for tensor in table.all(TensorOp):
        offset, slot = tensor.offset_, tensor.slot_
        if offset is None or slot is None:
            continue
        region = tensor.region_
        name = POOL if packed and region.transient else region.name
        span = spans.get(name)
        if span is None:
            yield tensor, f"tensor @{tensor.name_} has an offset, but {name} has no memplan.region"
            continue
        start, end = span.offset_, span.offset_ + span.bytes_
        if offset < start or offset + slot > end:
            yield (
                tensor,
                f"tensor @{tensor.name_} lies at {offset} to {offset + slot}, outside {name} at {start} to {end}",
            )
