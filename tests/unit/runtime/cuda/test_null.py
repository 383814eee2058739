"""The null driver finds every fault that is put into a right bundle."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import pytest

import trc
from tests.unit.runtime.cpu.plans import mlp_plan
from trc.codegen.cuda.bundle import generate
from trc.session.compiling import lower_to_plan
from trc_runtime.cuda.bundle import Sources, read_sources
from trc_runtime.cuda.calls import (
    Arena,
    Call,
    ClearCall,
    CopyCall,
    CudnnCall,
    Definition,
    DriverError,
    F,
    Host,
    I,
    KernelCall,
    N,
    NodeCalls,
    P,
    S,
)
from trc_runtime.cuda.null import check_sources, scratch_of
from trc_runtime.schema.plan import Plan

NET = trc.seq(
    trc.conv(8, 3, 1, 1), trc.bn(), trc.relu(), trc.conv(8, 3, 1, 1), trc.bn(), trc.relu(), trc.gap(), trc.fc(5)
)


def sources_of(plan: Plan) -> Sources:
    code = generate(plan)
    return read_sources(plan, code.kernels, code.driver)


@cache
def mlp() -> Sources:
    return sources_of(mlp_plan((12, 16, 5), (6, 4, 5)))


@cache
def conv() -> Sources:
    return sources_of(
        lower_to_plan(trc.BluePrint(NET), input=(8, 8, 3), precision="amp-fp16", target="cuda", batch=4, num_classes=5)
    )


def changed(sources: Sources, kind: str, change, which: type[Call] = KernelCall) -> Sources:
    """The sources with the first such call of the first node of a kind replaced; None as a change removes it."""
    definitions: list[Definition] = []
    done = False
    for definition in sources.definitions:
        nodes: dict[int, NodeCalls] = {}
        for index, node in definition.nodes.items():
            calls: list[Call] = []
            for call in node.calls:
                if not done and node.kind == kind and isinstance(call, which):
                    done = True
                    made = change(call)
                    calls += [] if made is None else [made]
                else:
                    calls.append(call)
            nodes[index] = replace(node, calls=calls)
        definitions.append(Definition(definition.name, nodes))
    assert done, f"no {which.__name__} of a {kind}"
    return replace(sources, definitions=tuple(definitions))


def with_arg(number: int, make):
    """A change of one argument."""

    def change(call: KernelCall) -> KernelCall:
        args = list(call.args)
        args[number] = make(args[number]) if callable(make) else make
        return replace(call, args=tuple(args))

    return change


def place_of(call: KernelCall, kind: type) -> int:
    return next(i for i, a in enumerate(call.args) if isinstance(a, kind))


def on(kind: type, make):
    """A change of the first argument of a type."""
    return lambda call: with_arg(place_of(call, kind), make)(call)


@pytest.mark.parametrize("make", [mlp, conv])
def test_a_right_bundle_has_no_problem(make) -> None:
    assert check_sources(make()) == []


FAULTS = [
    ("relu_fwd", lambda c: replace(c, name="relu_fwd__nope"), r"kernels\.cu has no kernel relu_fwd__nope"),
    ("relu_fwd", lambda c: replace(c, args=c.args[:-1]), r"takes \d arguments, not \d"),
    ("relu_fwd", lambda c: replace(c, grid=(0, 1, 1)), r"has a grid of \(0, 1, 1\)"),
    ("relu_fwd", lambda c: replace(c, grid=(1, 70000, 1)), r"has a grid of"),
    ("relu_fwd", lambda c: replace(c, block=(2048, 1, 1)), r"has a block of"),
    ("relu_fwd", lambda c: replace(c, block=(1024, 1, 1)), r"1024 threads a block, at most \d+"),
    ("relu_fwd", lambda c: replace(c, shared=1 << 20), r"bytes of shared memory, a block has at most"),
    ("relu_fwd", on(I, lambda a: N(a.value)), r"argument \d \(.*\) of relu.* is N\("),
    ("relu_fwd", on(I, I(1 << 70)), r"does not fit"),
    ("relu_fwd", on(P, F(1.0)), r"is F\("),
    ("relu_fwd", on(P, P(1 << 40)), r"points in no tensor \(offset \d+\), which is no operand"),
    ("relu_fwd", on(P, P(0)), r"points in .*, which is no operand of this node"),
    ("relu_fwd", on(P, lambda a: P(a.offset + 1)), r"not a multiple of"),
    ("relu_fwd", on(P, S(0)), r"outside the node's 0 bytes of scratch memory"),
    ("relu_fwd", lambda c: None, r"nothing writes y \(relu0\.output\)"),
]


@pytest.mark.parametrize(("kind", "change", "message"), FAULTS, ids=range(len(FAULTS)))
def test_faults_of_kernels(kind: str, change, message: str) -> None:
    problems = check_sources(changed(mlp(), kind, change))
    assert problems
    assert any(re.search(message, p) for p in problems), problems
    assert all("train_deep_fwd_bwd" in p or "infer" in p for p in problems), "the definition is named"


def test_writing_where_the_plan_reads() -> None:
    def change(call: KernelCall) -> KernelCall:
        pointers = [i for i, a in enumerate(call.args) if isinstance(a, P)]
        args = list(call.args)
        args[pointers[-1]] = args[pointers[0]]
        return replace(call, args=tuple(args))

    problems = check_sources(changed(mlp(), "relu_fwd", change))
    assert any("writes to x (fc0.output), which the plan says it reads" in p for p in problems), problems


@pytest.mark.parametrize(
    ("kind", "which", "change", "message"),
    [
        ("copy", CopyCall, lambda c: replace(c, nbytes=c.nbytes + 256), r"leaves (x|y) \("),
        ("copy", CopyCall, lambda c: replace(c, nbytes=0), r"of 0 bytes"),
        ("copy", CopyCall, lambda c: replace(c, dst=c.src), r"writes to x \(label_a\)"),
        ("h2d_copy", CopyCall, lambda c: replace(c, src=Host("C", "label")), r"no staged input"),
        ("h2d_copy", CopyCall, lambda c: replace(c, src=Arena(0)), r"points in"),
        ("h2d_copy", CopyCall, lambda c: replace(c, nbytes=c.nbytes + 4), r"which has \d+"),
        ("clear", ClearCall, lambda c: replace(c, offset=c.offset - 256), r"clear points in"),
        ("clear", ClearCall, lambda c: replace(c, nbytes=c.nbytes + 1), r"clear of \d+ bytes at \d+ leaves"),
    ],
)
def test_faults_of_copies(kind: str, which: type[Call], change, message: str) -> None:
    problems = check_sources(changed(mlp(), kind, change, which))
    assert any(re.search(message, p) for p in problems), problems


def _bind(role: str, place):
    def change(call: CudnnCall) -> CudnnCall:
        bindings = {**call.bindings, role: place(call.bindings) if callable(place) else place}
        return replace(call, bindings={r: p for r, p in bindings.items() if p is not None})

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_bind("x", None), r"x is not bound"),
        (_bind("z", 0), r"has no tensor z"),
        (_bind("y", lambda b: b["x"]), r"writes to x|leaves"),
        (_bind("y", lambda b: b["y"] + 4), r"leaves y"),
        (_bind("weight", 1 << 50), r"points in no tensor"),
        (lambda c: replace(c, key="conv_fwd_0"), r"CUDNN has no graph conv_fwd_0"),
        (_bind("workspace", 0), r"the workspace of graph .* points in"),
    ],
)
def test_faults_of_cudnn_calls(change, message: str) -> None:
    problems = check_sources(changed(conv(), "conv_norm_stats_fwd", change, CudnnCall))
    assert any(re.search(message, p) for p in problems), problems


def test_faults_of_descriptions() -> None:
    key = next(k for k, d in conv().cudnn.items() if d["op"] == "conv_norm_stats_fwd")
    broken = {**conv().cudnn[key], "padding": 3}
    problems = check_sources(replace(conv(), cudnn={**conv().cudnn, key: broken}))
    assert any("give" in p and "the description says" in p for p in problems), problems


def test_a_missing_edge_is_a_race() -> None:
    plan = mlp().plan
    for name, kinds in (("train_a", ("softmax_ce_bwd", "fc_bwd_weight")), ("train_a", ("check_nan", "adam_update"))):
        steps = []
        for step in plan.steps:
            after = list(step.after)
            if step.name == name:
                places = {plan.nodes[n].kind: i for i, n in reversed(list(enumerate(step.nodes)))}
                position = places[kinds[1]]
                after[position] = after[position - 1] if position - 1 != places[kinds[0]] else ()
                after[position] = tuple(p for p in after[position] if p != places[kinds[0]])
            steps.append(replace(step, after=tuple(after)))
        raced = replace(mlp(), plan=replace(plan, steps=tuple(steps)))
        problems = check_sources(raced)
        assert any("race on" in p for p in problems), (kinds, problems)


def test_overlapping_bytes_are_a_race_even_where_the_plan_intends_none() -> None:
    """Two gradients that nothing orders, moved onto each other: the tensors differ, the bytes are the same."""
    sources = conv()
    step = next(s for s in sources.plan.steps if s.name == "train_a")
    loose = replace(step, after=tuple(() for _ in step.after))
    steps = tuple(loose if s.name == "train_a" else s for s in sources.plan.steps)
    problems = check_sources(replace(sources, plan=replace(sources.plan, steps=steps)))
    assert any("the copy of the results" in p or "race on" in p for p in problems)


def test_nodes_missing_and_strange() -> None:
    definitions = list(mlp().definitions)
    number = next(i for i, d in enumerate(definitions) if len(d.nodes) > 3)
    nodes = dict(definitions[number].nodes)
    index = next(iter(nodes))
    del nodes[index]
    definitions[number] = Definition(definitions[number].name, nodes)
    problems = check_sources(replace(mlp(), definitions=tuple(definitions)))
    assert any(f"lacks node {index} (" in p for p in problems), problems
    strange = {**mlp().definitions[number].nodes, 0: NodeCalls(0, "clear", None, 0)}
    definitions[number] = Definition(
        "d", strange if 0 not in mlp().definitions[number].nodes else {**strange, 9999: strange[0]}
    )
    problems = check_sources(replace(mlp(), definitions=tuple(definitions)))
    assert any("which is not one of its bucket's" in p for p in problems), problems


def test_scratch_of_unordered_nodes_does_not_overlap() -> None:
    needs = dict.fromkeys(conv().cudnn, 1000)
    assert check_sources(conv(), needs) == []
    assert 1000 < scratch_of(conv(), needs) < 1000 * len(conv().plan.nodes)


def test_drivers_that_do_not_belong() -> None:
    code = generate(mlp().plan)
    with pytest.raises(DriverError, match="made for another plan"):
        read_sources(conv().plan, code.kernels, code.driver)
    with pytest.raises(DriverError, match="cannot be executed: SyntaxError"):
        read_sources(mlp().plan, code.kernels, "def (:")
    with pytest.raises(DriverError, match="cannot be executed: ZeroDivisionError"):
        read_sources(mlp().plan, code.kernels, "1 / 0")
    with pytest.raises(DriverError, match="CAPTURES must list one function"):
        read_sources(mlp().plan, code.kernels, f"PLAN_SHA256 = '{mlp().plan.sha256()}'\nCAPTURES = []")
