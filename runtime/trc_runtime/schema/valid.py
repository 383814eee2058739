"""Whether the numbers of a plan that was read from a file can be used at all: indices, sizes, offsets.

This is what reading defensively needs. That a plan is also right, `trc_runtime.schema.check` proves.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite, prod

from trc_runtime.schema.dtypes import DType
from trc_runtime.schema.graphs import GraphId, Variant
from trc_runtime.schema.plan import INITIAL_RULES, Node, Plan, RangeRef, Step, Tensor
from trc_runtime.schema.regions import slot_bytes
from trc_runtime.schema.staging import BUFFERS, BYTES, staged_parts

_LARGEST = 1 << 62


def plan_problems(plan: Plan) -> Iterator[str]:
    """What makes a plan unusable, one sentence each; nothing for a plan that can be bound to memory."""
    if not 0 <= plan.total < _LARGEST:
        yield f"a total of {plan.total} bytes"
    if len(plan.variants) != len(Variant):
        yield f"{len(plan.variants)} variants instead of {len(Variant)}"
        return
    for v in plan.variants:
        if min(v.batch, v.height, v.width, v.channels) < 1:
            yield f"variant {v.name} is {v.batch} x {v.height} x {v.width} x {v.channels}"
    names: set[str] = set()
    for t in plan.tensors:
        if t.name in names:
            yield f"two tensors are called '{t.name}'"
        names.add(t.name)
        yield from (f"tensor '{t.name}': {p}" for p in _tensor(t, plan))
    for s in plan.spans:
        if s.offset < 0 or s.bytes < 0 or s.offset + s.bytes > plan.total:
            yield f"span {s.name}, {s.bytes} bytes at {s.offset}, leaves the arena of {plan.total} bytes"
    yield from _input(plan)
    for number, node in enumerate(plan.nodes):
        yield from (f"node {number} ({node.kind}): {p}" for p in _node(node, len(plan.tensors)))
    for step in plan.steps:
        yield from (f"step '{step.name}': {p}" for p in _step(step, plan))
    yield from _atlas(plan)


def _tensor(t: Tensor, plan: Plan) -> Iterator[str]:
    if len(t.shapes) != len(plan.variants):
        yield f"has {len(t.shapes)} shapes for {len(plan.variants)} variants"
    if t.offset < 0 or t.slot < 0 or t.offset + t.slot > plan.total:
        yield f"{t.slot} bytes at {t.offset} leave the arena of {plan.total} bytes"
    for shape in t.shapes:
        if shape is None:
            continue
        if len(shape) != 4 or min(shape) < 1:
            yield f"{list(shape)} is not a shape"
        elif slot_bytes(shape, t.dtype, t.region) > t.slot:
            yield f"the shape {list(shape)} does not fit a slot of {t.slot} bytes"
    if bad := [v for v in (t.initial.value, *t.initial.values) if not isfinite(v)]:
        yield f"an initial value of {bad[0]}"
    if t.initial.rule not in INITIAL_RULES:
        yield f"unknown initial rule '{t.initial.rule}'"
    elif t.initial.rule != "values" and t.initial.values:
        yield f"rule {t.initial.rule} with {len(t.initial.values)} values"
    elif t.initial.rule.startswith("kaiming") and t.initial.fan < 1:
        yield f"rule {t.initial.rule} with a fan of {t.initial.fan}"
    elif t.initial.rule == "values":
        count = len(t.initial.values)
        if wrong := [s for s in t.shapes if s is not None and prod(s) != count]:
            yield f"rule values with {count} values for the shape {list(wrong[0])}"


def _input(plan: Plan) -> Iterator[str]:
    """Images are staged as bytes exactly where the settings say that the device normalises them."""
    tensors, normalise = {t.name: t for t in plan.tensors}, plan.config.normalise
    for buffer in BUFFERS:
        parts = staged_parts(tensors, buffer)
        images = parts.get(BYTES)
        if images is None:
            if parts and normalise is not None:
                yield f"normalises images ({normalise}), but has no bytes of them in input buffer {buffer}"
        elif normalise is None:
            yield f"has '{images.name}', but does not say how to normalise it"
        elif images.dtype is not DType.U8 or any(s[-1] != len(normalise.mean) for s in images.shapes if s):
            yield f"'{images.name}' does not have bytes of {len(normalise.mean)} channels, which are normalised"


def _node(node: Node, tensors: int) -> Iterator[str]:
    for operand in node.operands:
        if isinstance(operand.ref, RangeRef):
            if operand.ref.first.ordinal > operand.ref.last.ordinal:
                yield f"the range {operand.ref.first.name} to {operand.ref.last.name} runs backwards"
        elif not 0 <= operand.ref.tensor < tensors:
            yield f"operand {operand.name} is tensor {operand.ref.tensor} of {tensors}"
    for role, index in node.scalars:
        if not 0 <= index < tensors:
            yield f"scalar {role} is tensor {index} of {tensors}"


def _step(step: Step, plan: Plan) -> Iterator[str]:
    if any(not 0 <= c < len(plan.variants) for c in step.columns):
        yield f"there are no variants {list(step.columns)}"
    if any(not 0 <= n < len(plan.nodes) for n in step.nodes):
        yield f"a node outside the plan's {len(plan.nodes)}"
    if len(step.after) != len(step.nodes):
        yield f"orders {len(step.after)} of {len(step.nodes)} nodes"
    for position, before in enumerate(step.after):
        if any(not 0 <= p < position for p in before):
            yield f"its node {position} waits for {list(before)}"


def _atlas(plan: Plan) -> Iterator[str]:
    if any(not 0 <= c.column < len(plan.variants) for c in plan.captures):
        yield "a capture of a variant that does not exist"
    if [len(row) for row in plan.atlas] != [len(GraphId)] * len(plan.variants):
        yield f"the atlas is not {len(plan.variants)} x {len(GraphId)}"
    if any(not -1 <= entry < len(plan.captures) for row in plan.atlas for entry in row):
        yield f"the atlas names a capture outside the plan's {len(plan.captures)}"
