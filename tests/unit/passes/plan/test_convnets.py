"""What must hold for every plan of a convolutional network."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trc.layers  # noqa: F401  (registers the kinds)
from tests.unit.passes.plan.brute import World, overlaps, unordered_conflicts
from tests.unit.passes.plan.convnets import ConvNet, conv_networks
from tests.unit.passes.plan.nets import Drawn, planned, run
from tests.unit.passes.plan.test_properties import (
    nothing_is_dead,
    spans_hold_their_tensors,
    transients_are_written_before_they_are_read,
)
from trc.codegen.plan_lowering import lower_module
from trc.dialects.context import make_context
from trc.dialects.parsing import parse_module
from trc.dialects.verifier import problems
from trc_runtime.schema.check import check_plan
from trc_runtime.schema.config import SGD, Constant, CrossEntropy, RunConfig
from trc_runtime.schema.dtypes import Precision
from trc_runtime.schema.plan import Plan
from trc_runtime.schema.report import memory_report

some = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])

OPTIONS = st.fixed_dictionaries(
    {
        "batch": st.sampled_from([2, 5, 64]),
        "train-samples": st.sampled_from([0, 1002]),
        "val-batch": st.sampled_from([0, 5]),
        "precision": st.sampled_from(["fp32", "fp64", "amp-fp16", "amp-bf16"]),
        "target": st.sampled_from(["cpu", "cuda"]),
        "world-size": st.sampled_from([1, 3]),
        "mode": st.sampled_from(["packed", "packed", "regions"]),
    }
).map(lambda d: {k: str(v) for k, v in d.items()})

CONFIG = RunConfig(
    optimizer=SGD(),
    schedule=Constant(base_lr=0.1),
    loss=CrossEntropy(0.1),
    input=(8, 8, 8),
    num_classes=5,
    batch=2,
    val_batch=2,
    epochs=None,
    train_samples=None,
    val_samples=None,
    train_resolution=((8, 8), (8, 8)),
    val_resolution=(8, 8),
    world_size=1,
    precision=Precision.FP32,
    seed=0,
)


def plan_of(drawn: Drawn, options: dict[str, str]) -> tuple[World, Plan]:
    module = planned(drawn.module, options)
    assert problems(module) == []
    return World(module), lower_module(module, CONFIG)


@given(conv_networks(), OPTIONS)
@some
def test_every_plan(net: Drawn, options: dict[str, str]) -> None:
    world, plan = plan_of(net, options)
    assert check_plan(plan) == []
    for step in world.steps.values():
        assert list(unordered_conflicts(world, step)) == []
        assert list(overlaps(world, step)) == []
    nothing_is_dead(world)
    transients_are_written_before_they_are_read(world)
    spans_hold_their_tensors(world)


@given(conv_networks())
@settings(some, max_examples=60)
def test_the_pool_is_as_small_as_can_be(net: Drawn) -> None:
    """Slots of a few bytes cannot always be packed without a rest, so the batch is large."""
    _, plan = plan_of(net, {"batch": "256", "precision": "amp-fp16"})
    report = memory_report(plan)
    assert report.peak is not None
    assert report.transient <= 1.02 * report.peak.bytes


@given(conv_networks())
@settings(some, max_examples=15)
def test_the_text_of_a_plan_reads_back(net: Drawn) -> None:
    module = planned(net.module, batch=4, precision="amp-fp16", target="cuda")
    text = str(module)
    again = parse_module(text, "net.mlir", make_context())
    assert str(again) == text


@given(conv_networks(), st.sampled_from(["fp32", "amp-fp16"]))
@settings(some, max_examples=25)
def test_each_parameter_gets_one_gradient(net: Drawn, precision: str) -> None:
    world = World(planned(net.module, batch=4, precision=precision))
    parameters = {n for n, t in world.tensors.items() if t.region_.name.startswith("W_") and ".eq_" not in n}
    nodes = world.nodes(world.steps["train_a"])
    for name in parameters:
        half = f"{name}.grad_half" in world.tensors
        assert half == (precision != "fp32" and "CONV" in world.tensors[name].region_.name)
        writers = [n.op.kind_ for n in nodes if f"{name}.grad" in n.writes and n.op.kind_ != "clear"]
        assert len(writers) == 1
        assert (writers == ["cast_range"]) == half
        assert any(f"{name}.grad" in n.reads and name in n.writes for n in nodes)


def test_selecting_again_changes_nothing() -> None:
    made = ConvNet()
    module = made.done(made.conv_bn_relu(made.conv_bn_relu(made.input, 8), 8))
    once = str(run(module, "plan-select-kernels"))
    assert str(run(module, "plan-select-kernels")) == once
