"""The independent checker finds what is wrong with a plan, and nothing in a right one."""

from dataclasses import replace

import pytest

from tests.unit.runtime.schema.plans import KINDS, WEIGHTS, R, W, node, tensor, tiny_plan
from trc_runtime.schema.check import check_plan
from trc_runtime.schema.plan import Operand, Plan, RangeRef, Span
from trc_runtime.schema.regions import Region

GOOD = tiny_plan()
TO_MASK = Operand("r", W, RangeRef(Region.W_FC_BIAS, Region.S_MASK))


def with_step(**changes: object) -> Plan:
    return replace(GOOD, steps=(replace(GOOD.steps[0], **changes),))  # type: ignore[arg-type]


def with_tensor(index: int, **changes: object) -> Plan:
    tensors = list(GOOD.tensors)
    tensors[index] = replace(tensors[index], **changes)  # type: ignore[arg-type]
    return replace(GOOD, tensors=tuple(tensors))


def with_node(index: int, new: object) -> Plan:
    nodes = list(GOOD.nodes)
    nodes[index] = new  # type: ignore[call-overload]
    return replace(GOOD, nodes=tuple(nodes))


def test_a_right_plan_has_no_problems() -> None:
    assert check_plan(GOOD, KINDS) == []


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (replace(GOOD, total=1400), "span POOL leaves the arena"),
        (with_tensor(1, slot=256), "tensor l1.weight: slot of 256 bytes, column 0 needs 512"),
        (with_tensor(1, offset=600), "not a multiple of 256"),
        (with_tensor(1, offset=0), "tensor l1.weight at 0 lies outside span W_FC_WEIGHT"),
        (replace(GOOD, spans=(*GOOD.spans[:2], Span("POOL", 512, 1024))), "spans W_FC_WEIGHT and POOL overlap"),
        (replace(GOOD, spans=GOOD.spans[1:]), "region W_FC_BIAS has no span"),
        (replace(GOOD, spans=(Span("W_FC_BIAS", 0, 0), *GOOD.spans[1:])), "lies outside span W_FC_BIAS"),
        (with_step(after=((), (0,), (), (2,))), "race on l1.b"),
        (with_step(after=((), (0,), (1,), ())), "race on l1.weight"),
        (with_step(after=((), (0,), (3,), (2,))), "not an order"),
        (with_step(nodes=(1, 0, 2, 3), after=((), (0,), (1,), (2,))), "reads l1.a before it is written"),
        (with_node(1, node("make", x=(R, 2), y=(W, 3))), "which share bytes"),
        (with_node(1, node("make", y=(W, 2))), "reads l1.b before it is written"),
        (with_tensor(2, shapes=((1, 1, 1, 8), None) * 3), ""),
        (
            with_tensor(2, shapes=((1, 1, 1, 8), None, None, None, None, None)),
            "touches l1.a, which column 2 does not have",
        ),
        (
            with_node(
                3, replace(GOOD.nodes[3], operands=(Operand("r", W, RangeRef(Region.W_FC_BIAS, Region.S_MASK)),))
            ),
            "touches transient regions",
        ),
    ],
)
def test_each_violation_is_found(plan: Plan, message: str) -> None:
    problems = check_plan(plan, KINDS)
    if not message:  # a column that no step runs in may be absent
        assert problems == []
    else:
        assert any(message in p for p in problems), problems


def test_a_value_written_over_before_its_use() -> None:
    c = tensor("l1.c", Region.F_FEATURE_FP32, 1024)
    plan = replace(
        GOOD,
        tensors=(*GOOD.tensors, c),
        nodes=(*GOOD.nodes[:2], node("make", y=(W, 4)), *GOOD.nodes[2:]),
        steps=(replace(GOOD.steps[0], nodes=(0, 1, 2, 3, 4), after=((), (0,), (1,), (2,), (3,))),),
    )
    assert any("of l1.b has been written over" in p for p in check_plan(plan, KINDS))


def test_a_range_with_a_gap() -> None:
    plan = replace(
        with_tensor(1, offset=768),
        spans=(Span("W_FC_BIAS", 0, 512), Span("W_FC_WEIGHT", 512, 768), Span("POOL", 1280, 512)),
        total=1792,
    )
    plan = replace(plan, tensors=(*plan.tensors[:2], *(replace(t, offset=1280) for t in plan.tensors[2:])))
    assert any("gap or stranger before l1.weight" in p for p in check_plan(plan, KINDS))
    assert WEIGHTS.first is Region.W_FC_BIAS
