"""What must hold for every plan, tried on many small networks."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trc.layers  # noqa: F401  (registers the kinds)
from tests.unit.passes.plan.brute import World, overlaps, unordered_conflicts
from tests.unit.passes.plan.nets import Drawn, Net, article_mlp, mlp, networks, planned
from trc.dialects.arch import FcOp, TanhOp
from trc.dialects.memplan import PlanOp, RegionOp
from trc.dialects.verifier import problems

few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])

OPTIONS = st.fixed_dictionaries(
    {
        "batch": st.sampled_from([3, 5, 64]),
        "train-samples": st.sampled_from([0, 1004]),
        "val-batch": st.sampled_from([0, 5]),
        "val-samples": st.sampled_from([0, 77]),
        "precision": st.sampled_from(["fp32", "fp64", "amp-fp16"]),
        "optimizer": st.sampled_from(["sgd", "adam", "adamw"]),
        "world-size": st.sampled_from([1, 3]),
        "mode": st.sampled_from(["packed", "packed", "regions"]),
    }
).map(lambda d: {k: str(v) for k, v in d.items()})


@given(networks(), OPTIONS)
@few
def test_every_plan(net: Drawn, options: dict[str, str]) -> None:
    module = planned(net.module, options)
    assert problems(module) == []
    world = World(module)
    for step in world.steps.values():
        assert list(unordered_conflicts(world, step)) == []
        assert list(overlaps(world, step)) == []
    nothing_is_dead(world)
    transients_are_written_before_they_are_read(world)
    spans_hold_their_tensors(world)


def nothing_is_dead(world: World) -> None:
    read = set().union(*(n.reads for n in world.all_nodes))
    results = {name for name, t in world.tensors.items() if t.region_.name.startswith("R_")}
    assert set(world.tensors) - read - results == set()


def transients_are_written_before_they_are_read(world: World) -> None:
    for step in world.steps.values():
        written: set[str] = set()
        for node in world.nodes(step):
            for name in node.reads:
                if world.tensors[name].region_.transient:
                    assert name in written, (step.name_, node.op.kind_, name)
            written |= node.writes


def spans_hold_their_tensors(world: World) -> None:
    ops = list(world.module.body.block.ops)
    (plan,) = [o for o in ops if isinstance(o, PlanOp)]
    spans = {o.name_: o for o in ops if isinstance(o, RegionOp)}
    cursor = 0
    for span in spans.values():
        assert span.offset_ == cursor
        cursor += span.bytes_
    assert cursor == plan.total_
    for t in world.tensors.values():
        home = spans["POOL" if t.region_.transient and plan.mode_ == "packed" else t.region_.name]
        assert t.offset_ is not None
        assert t.slot_ is not None
        assert home.offset_ <= t.offset_ <= t.offset_ + t.slot_ <= home.offset_ + home.bytes_


@given(networks())
@few
def test_each_parameter_gets_one_gradient(net: Drawn) -> None:
    world = World(planned(net.module, batch=4))
    parameters = {n for n, t in world.tensors.items() if t.region_.name.startswith("W_") and ".eq_" not in n}
    assert parameters
    for step in ("train_a", "train_b", "train_last_a", "train_last_b"):
        nodes = world.nodes(world.steps[step])
        for name in parameters:
            writers = [n for n in nodes if f"{name}.grad" in n.writes and n.op.kind_ != "clear"]
            assert len(writers) == 1, (step, name)
            assert any(f"{name}.grad" in n.reads and name in n.writes for n in nodes), (step, name)


@pytest.mark.parametrize("batch", [16, 200])
@pytest.mark.parametrize(
    "widths", [(1024, 512, 256, 10), (64,) * 12 + (10,), (10, 40, 160, 640, 10), (3000, 10, 3000, 10), (300, 10)]
)
def test_the_pool_of_an_mlp_is_as_small_as_can_be(widths: tuple[int, ...], batch: int) -> None:
    module = planned(mlp(*widths), batch=batch)
    world = World(module)
    bound = 0
    for step in world.steps.values():
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        for n, node in enumerate(world.nodes(step)):
            for name in node.reads | node.writes:
                if world.tensors[name].region_.transient:
                    first.setdefault(name, n)
                    last[name] = n
        for n in range(len(step.after_)):
            # a result that may lie where its input lay counts once
            alive = {name for name in first if first[name] <= n <= last[name]}
            places = {world.tensors[name].offset_: world.tensors[name].slot_ or 0 for name in alive}
            bound = max(bound, sum(places.values()))
    (pool,) = [o for o in module.body.block.ops if isinstance(o, RegionOp) and o.name_ == "POOL"]
    assert bound <= pool.bytes_ <= 1.02 * bound


def test_an_activation_takes_the_place_of_its_input() -> None:
    net = Net((1, 1, 6))
    value = net.add(FcOp, net.add(FcOp, net.input, out_features=8), out_features=8)
    value = net.add(TanhOp, value, layer="tanh1")
    tensors = World(planned(net.finish(net.add(FcOp, value, out_features=5), 5))).tensors
    assert tensors["fc2.output"].offset_ == tensors["tanh1.output"].offset_
    assert tensors["tanh1.output.grad"].offset_ == tensors["fc2.output.grad"].offset_


def test_the_same_input_gives_the_same_bytes() -> None:
    assert str(planned(article_mlp())) == str(planned(article_mlp()))
