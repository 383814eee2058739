"""Merged layers mean and cost what their parts do."""

from __future__ import annotations

import re

import pytest
from xdsl.dialects.builtin import ModuleOp

import trc.layers  # noqa: F401  (registers the descriptors)
from tests.unit.passes.plan.brute import World
from tests.unit.passes.plan.convnets import ConvNet
from tests.unit.passes.plan.nets import planned
from trc.blueprint import BluePrint, cbr, fc, flatten, maxpool, mbconv, relu, repeat, seq
from trc.dialects.arch import (
    BasicBlockOp,
    BottleneckOp,
    CbrOp,
    CbrpOp,
    GapFcOp,
    InvertedResidualOp,
    MergedOp,
)
from trc.layers.registry import parts_of
from trc.models import lenet5, mobilenet_v2, nin, resnet18, vgg11_bn
from trc.session.compiling import lower_to_plan
from trc_runtime.schema.check import check_plan
from trc_runtime.schema.plan import Plan
from trc_runtime.schema.regions import Region

MODELS = {"lenet5": lenet5, "nin": nin, "resnet18": resnet18, "vgg11_bn": vgg11_bn, "mobilenet_v2": mobilenet_v2}


def nodes_of(plan: Plan) -> list[tuple[object, ...]]:
    return [(n.kind, n.bucket, n.layer, n.operands, n.scalars, tuple(n.params.items())) for n in plan.nodes]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("precision", "target"), [("fp32", "cpu"), ("amp-fp16", "cuda")])
def test_a_network_costs_the_same_however_its_layers_are_grouped(name: str, precision: str, target: str) -> None:
    plans = [
        lower_to_plan(MODELS[name](input=(64, 64, 3)), batch=4, precision=precision, target=target, fuse=fuse)
        for fuse in (True, False)
    ]
    assert check_plan(plans[0]) == []
    assert nodes_of(plans[0]) == nodes_of(plans[1])
    assert plans[0].tensors == plans[1].tensors


CASES: list[tuple[type[MergedOp], dict[str, object], list[str]]] = [
    (CbrOp, {"out_channels": 8, "kernel": 3, "padding": 1, "act": "relu6"}, ["conv", "bn", "relu6"]),
    (
        CbrpOp,
        {"out_channels": 8, "kernel": 1, "pool_kernel": 2, "pool_stride": 2},
        ["conv", "bn", "relu", "max_pool"],
    ),
    (GapFcOp, {"out_features": 7}, ["gap", "fc"]),
    (
        BottleneckOp,
        {"mid_channels": 8, "out_channels": 16, "stride": 2, "shortcut": "projection"},
        ["conv", "bn", "conv", "bn", "relu", "conv", "bn", "relu", "conv", "bn", "add", "relu"],
    ),
    (BasicBlockOp, {"out_channels": 8}, ["conv", "bn", "relu", "conv", "bn", "add", "relu"]),
    (
        InvertedResidualOp,
        {"expand_channels": 16, "out_channels": 8, "shortcut": "identity"},
        ["conv", "bn", "relu6", "conv", "bn", "relu6", "conv", "bn", "add"],
    ),
    (InvertedResidualOp, {"expand_channels": None, "out_channels": 16}, ["conv", "bn", "relu6", "conv", "bn"]),
]


@pytest.mark.parametrize(
    ("kind", "options", "parts"), CASES, ids=[f"{k.name}-{n}" for n, (k, _, _) in enumerate(CASES)]
)
def test_parts(kind: type[MergedOp], options: dict[str, object], parts: list[str]) -> None:
    net = ConvNet()
    value = net.merged(kind, net.input, **options)
    assert isinstance(value.owner, MergedOp)
    found = parts_of(value.owner)
    assert [part.op.name.removeprefix("arch.").removesuffix("2d") for part in found] == parts
    assert [part.name for part in found] == list(value.owner.leaf_names)


def test_parameters_keep_the_names_of_the_parts() -> None:
    net = ConvNet()
    value = net.merged(BottleneckOp, net.input, mid_channels=8, out_channels=16, shortcut="projection")
    tensors = World(planned(net.done(value), batch=2)).tensors
    weights = {n: t.shapes_[0] for n, t in tensors.items() if n.startswith("m1") and re.fullmatch(r"m1_\d+\.weight", n)}
    convolutions = {n: s for n, s in weights.items() if s is not None and s[0] > 1}
    assert convolutions == {
        "m1_0.weight": (16, 1, 1, 8),
        "m1_2.weight": (8, 1, 1, 8),
        "m1_5.weight": (8, 3, 3, 8),
        "m1_8.weight": (16, 1, 1, 8),
    }


def first_regions(module: ModuleOp) -> dict[str, Region]:
    tensors = World(planned(module, batch=2)).tensors
    return {n: t.region_ for n, t in tensors.items() if t.region_ in (Region.W_FIRST_CONV, Region.I_A_DATA)}


def test_the_first_convolution_of_a_merged_first_layer() -> None:
    net = ConvNet()
    assert "m1_0.weight" in first_regions(net.done(net.merged(CbrOp, net.input, out_channels=8, kernel=1)))
    net = ConvNet()
    block = net.merged(BasicBlockOp, net.input, out_channels=8)
    found = first_regions(net.done(block))
    assert list(found) == ["data_a"], "the sum reads the input too, so a copy of it"


def test_an_end_of_a_block_needs_no_tensor_but_its_own() -> None:
    net = ConvNet()
    module = net.done(net.merged(BasicBlockOp, net.conv(net.input, 8), out_channels=8))
    tensors = World(planned(module, batch=2)).tensors
    features = [n for n, t in tensors.items() if t.region_ is Region.F_FEATURE_FP32 and t.shapes_[0] is not None]
    assert features == ["conv1.output", "m1_0.output", "m1_3.output", "m1_6.output", "gap1.output", "fc1.output"]


def test_a_blueprint_of_everything() -> None:
    body = cbr(8, 3, 1, 1), repeat(mbconv(6, 8, 1), 2), maxpool(2, 2), flatten(), fc(20), relu(), fc(5)
    net = BluePrint(seq(*body), "everything", (8, 8, 3))
    plan = lower_to_plan(net, batch=4, precision="amp-fp16", target="cuda")
    assert check_plan(plan) == []
