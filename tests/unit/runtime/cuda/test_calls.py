"""Records of calls, signatures of kernels, linked arguments, launches side by side."""

from __future__ import annotations

import ctypes

import pytest

from tests.unit.runtime.cpu.plans import mlp_plan
from trc_runtime.cuda.calls import (
    Arena,
    ClearCall,
    CopyCall,
    D,
    DriverError,
    F,
    Host,
    I,
    KernelCall,
    N,
    P,
    Ring,
    S,
    record,
)
from trc_runtime.cuda.link import Copy, Launch, Linker
from trc_runtime.cuda.order import compose, place_scratch
from trc_runtime.cuda.signatures import parse


def test_recording() -> None:
    def inner(c) -> None:
        c.node(7, "copy", None)
        c.copy(Arena(0), Host("A", "label"), 16)

    def outer(c) -> None:
        c.node(3, "clear", None, 512)
        c.clear(256, 64)
        c.kernel("k", (1, 1, 1), (32, 1, 1), 0, (S(0),))
        c.embed("inner")

    definition = record(outer, {"inner": inner})
    assert definition.name == "outer"
    assert definition.nodes[3].scratch == 512
    assert [type(c) for c in definition.nodes[3].calls] == [ClearCall, KernelCall]
    assert definition.nodes[7].calls == [CopyCall(Arena(0), Host("A", "label"), 16)]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda c: c.clear(0, 1), "before the first node"),
        (lambda c: [c.node(1, "clear", None), c.node(1, "clear", None)], "announced twice"),
        (lambda c: c.embed("nope"), "embeds 'nope'"),
    ],
)
def test_wrong_drivers(function, message: str) -> None:
    with pytest.raises(DriverError, match=message):
        record(function)


SOURCE = """
// extern "C" __global__ void not_this(int x)
extern "C" __global__ void __launch_bounds__(256)
alpha__f16(const __half* __restrict__ x, float* y, i64 n, int k, float a, double b)
{ }
extern "C" __global__ __launch_bounds__(128, 2) void beta(uint4 *p, const long long n) { }
extern "C" __global__ void empty() { }
"""


def test_signatures() -> None:
    found = parse(SOURCE)
    assert list(found) == ["alpha__f16", "beta", "empty"]
    alpha = found["alpha__f16"]
    assert [p.name for p in alpha.parameters] == ["x", "y", "n", "k", "a", "b"]
    assert [p.wanted for p in alpha.parameters] == [P, P, I, N, F, D]
    assert [p.writable for p in alpha.parameters[:2]] == [False, True]
    assert [p.alignment for p in alpha.parameters[:2]] == [2, 4]
    assert (alpha.threads, found["beta"].threads, found["empty"].threads) == (256, 128, None)
    assert found["beta"].parameters[0].alignment == 16
    assert alpha.parameters[0].accepts(S(0))
    assert not alpha.parameters[2].accepts(N(1))
    with pytest.raises(DriverError, match=r"kernel k takes 'Thing t'"):
        parse('extern "C" __global__ void k(Thing t) {}')
    with pytest.raises(DriverError, match="defines empty twice"):
        parse(SOURCE + 'extern "C" __global__ void empty() { }')


def linker(**more) -> Linker:
    options = {"arena": 1000, "arena_size": 4096, "scratch": 50_000, "scratch_of": {0: 256}, "functions": {"k": "f"}}
    return Linker(**{**options, "plans": {}, "staging": {("A", "label"): 77}, **more})


def test_linking() -> None:
    def function(c) -> None:
        c.node(0, "x", "layer")
        c.kernel("k", (1, 2, 3), (32, 1, 1), 8, (P(16), S(4), I(-5), N(-6), F(1.5), D(2.5)))
        c.copy(Arena(0), Host("A", "label"), 16)

    ops = linker().link(record(function))[0]
    launch, copy = ops
    assert isinstance(launch, Launch)
    pointers = (ctypes.c_void_p * 6).from_address(launch.params.address)
    kinds = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64, ctypes.c_int32, ctypes.c_float, ctypes.c_double)
    values = [k.from_address(p or 0).value for k, p in zip(kinds, pointers, strict=True)]
    assert values == [1016, 50_260, -5, -6, 1.5, 2.5]
    assert copy == Copy(1000, 77, 16, "to_device", "A")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.kernel("nope", (1, 1, 1), (1, 1, 1), 0, ()), "no kernel nope"),
        (lambda c: c.clear(4096, 4), "offset 4096 lies outside the arena of 4096 bytes"),
        (lambda c: c.cudnn("key", {}), "no cuDNN graph key"),
        (lambda c: c.copy(Arena(0), Host("B", "label"), 4), "no staged input B label"),
        (lambda c: c.copy(Ring(0), Arena(0), 4), "copies to Ring"),
        (lambda c: c.collective("mean", 0, 4, "f32"), "several ranks"),
    ],
)
def test_linking_what_does_not_exist(call, message: str) -> None:
    def function(c) -> None:
        c.node(0, "x", "layer1")
        call(c)

    with pytest.raises(DriverError, match=message) as caught:
        linker().link(record(function))
    assert "node 0 (x of layer 'layer1')" in str(caught.value)


def test_launches_side_by_side() -> None:
    plan = mlp_plan((6, 5), (4, 2, 3))
    steps = {s.name: s for s in plan.steps}
    order = compose(plan, [(steps["train_a"], 0), (steps["transfer_b"], 0)])
    count = len(steps["train_a"].nodes)
    assert len(order.items) == count + len(steps["transfer_b"].nodes)
    assert all(p >= count for before in order.after[count:] for p in before)
    assert not order.ordered(0, count)
    assert order.results
    assert all(plan.nodes[order.items[p][0]].kind in ("softmax_ce_fwd", "check_nan") for p in order.results)
    with pytest.raises(ValueError, match="does not run in column 4"):
        compose(plan, [(steps["train_a"], 4)])


def test_scratch_places() -> None:
    plan = mlp_plan((6, 5), (4, 2, 3))
    step = next(s for s in plan.steps if s.name == "train_a")
    a, b, c = step.nodes[:3]
    chain, total = place_scratch(plan, {a: 100, b: 700, c: 0})
    assert chain == {a: 0, b: 0}
    assert total == 768
