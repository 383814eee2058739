"""Convolutions, pools and what else works on maps: tensors and nodes."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp

import trc.layers  # noqa: F401  (registers the descriptors)
from tests.unit.passes.plan.brute import World
from tests.unit.passes.plan.convnets import ConvNet
from tests.unit.passes.plan.nets import planned, run
from trc.diagnostics import CompileError
from trc.dialects.arch import (
    AddOp,
    AvgPoolOp,
    ChannelPaddingOp,
    ConvOp,
    FcOp,
    FlattenOp,
    GapOp,
    LayerOp,
    MaxPoolOp,
    ReluOp,
)
from trc_runtime.schema.dtypes import DType
from trc_runtime.schema.plan import Initial
from trc_runtime.schema.regions import Region


def two_convolutions(size: tuple[int, int, int] = (8, 8, 8), **options: object) -> ModuleOp:
    net = ConvNet(size)
    return net.done(net.conv(net.conv(net.input, 16), 24, **options))


def emitted(
    world: World, layer: str, step: str = "train_a"
) -> list[tuple[str, tuple[object, ...], tuple[object, ...]]]:
    nodes = [n.op for n in world.nodes(world.steps[step]) if n.op.layer_ == layer]
    return [(n.kind_, tuple(n.reads_), tuple(n.writes_)) for n in nodes]


def test_weights_of_the_first_and_of_the_other_convolutions() -> None:
    tensors = World(planned(two_convolutions(groups=4, bias=True), optimizer="sgd", momentum="0.9")).tensors
    first, deep = tensors["conv1.weight"], tensors["conv2.weight"]
    assert (first.region_, first.shapes_[0]) == (Region.W_FIRST_CONV, (16, 3, 3, 8))
    assert (deep.region_, deep.shapes_[0]) == (Region.W_DEEP_CONV, (24, 3, 3, 4))
    assert first.initial_ == Initial("kaiming_uniform", fan=72)
    assert deep.initial_ == Initial("kaiming_uniform", fan=36)
    assert tensors["conv2.bias"].region_ is Region.W_FC_BIAS
    assert tensors["conv1.weight.grad"].region_ is Region.G_FIRST_CONV
    assert tensors["conv2.weight.m"].region_ is Region.M_DEEP_CONV
    assert "conv1.bias" not in tensors
    assert "conv1.weight.half" not in tensors


def test_nodes_of_a_convolution() -> None:
    world = World(planned(two_convolutions(groups=4, bias=True)))
    assert emitted(world, "conv2") == [
        ("conv_fwd", ("conv1.output", "conv2.weight", "conv2.bias"), ("conv2.output",)),
        ("conv_bwd_weight", ("conv2.output.grad", "conv1.output"), ("conv2.weight.grad",)),
        ("conv_bwd_bias", ("conv2.output.grad",), ("conv2.bias.grad",)),
        ("conv_bwd_data", ("conv2.output.grad", "conv2.weight"), ("conv1.output.grad",)),
    ]
    (forward,) = [n.op for n in world.nodes(world.steps["infer_a"]) if n.op.layer_ == "conv2"]
    assert (forward.kind_, forward.writes_) == ("conv_fwd", ("conv2.output.inf",))
    assert forward.params_ == {"stride": 1, "padding": 1, "groups": 4}


def test_the_first_convolution_has_no_data_gradient_and_runs_in_buckets_of_the_buffers() -> None:
    world = World(planned(two_convolutions()))
    buckets = world.computations["train"].buckets_
    where = {g.name: [n.kind_ for n in b.nodes_ if n.layer_ == "conv1"] for g, b in buckets.items()}
    assert {g: kinds for g, kinds in where.items() if kinds} == {
        "FIRST_LAYER_FWD_A": ["conv_fwd"],
        "FIRST_LAYER_FWD_B": ["conv_fwd"],
        "FIRST_LAYER_BWD_A": ["conv_bwd_weight"],
        "FIRST_LAYER_BWD_B": ["conv_bwd_weight"],
    }


def test_a_depthwise_convolution_has_as_many_groups_as_channels() -> None:
    net = ConvNet((8, 8, 12))
    value = net.add(ConvOp, net.input, out_channels=None, kernel=3, padding=1, depthwise=True)
    world = World(planned(net.done(value)))
    assert world.tensors["conv1.weight"].shapes_[0] == (12, 3, 3, 1)
    assert world.tensors["conv1.weight"].initial_.fan == 9
    assert {n.op.params_["groups"] for n in world.all_nodes if "groups" in n.op.params_} == {12}


def test_mixed_precision_has_half_weights_and_half_gradients() -> None:
    world = World(planned(two_convolutions(bias=True), precision="amp-fp16"))
    tensors = world.tensors
    wanted = {
        "conv1.weight.half": Region.A_FIRST_CONV,
        "conv1.weight.grad_half": Region.G_FIRST_CONV_FP16,
        "conv2.weight.half": Region.A_DEEP_CONV,
        "conv2.weight.grad_half": Region.G_DEEP_CONV_FP16,
    }
    assert {name: tensors[name].region_ for name in wanted} == wanted
    assert all(tensors[name].dtype_ is DType.F16 for name in wanted)
    assert "fc1.weight.grad_half" not in tensors
    assert "conv2.bias.grad_half" not in tensors
    assert emitted(world, "conv2")[1][2] == ("conv2.weight.grad_half",)
    casts = {
        g.name: [(n.reads_, n.writes_) for n in b.nodes_]
        for g, b in world.computations["train"].buckets_.items()
        if g.name.startswith("CAST_")
    }
    deep, deep_half = Region.G_DEEP_CONV, Region.G_DEEP_CONV_FP16
    first, first_half = Region.G_FIRST_CONV, Region.G_FIRST_CONV_FP16
    assert casts == {
        "CAST_DEEP_GRAD_FP16_TO_FP32": [(((deep_half, deep_half),), ((deep, deep),))],
        "CAST_FIRST_GRAD_FP16_TO_FP32": [(((first_half, first_half),), ((first, first),))],
        "CAST_MAIN_FP32_TO_FP16": [
            (((Region.W_FC_WEIGHT, Region.W_DEEP_CONV),), ((Region.A_FC_WEIGHT, Region.A_DEEP_CONV),))
        ],
    }
    steps = [g.name for g in world.steps["train_a"].buckets_]
    assert steps.index("CAST_DEEP_GRAD_FP16_TO_FP32") < steps.index("NAN_CHECK_AND_GRAD_SCALING")


def test_an_image_of_three_channels_is_given_a_fourth_of_zeros() -> None:
    world = World(planned(two_convolutions((8, 8, 4)), precision="amp-fp16", channels=3, optimizer="sgd"))
    tensors = world.tensors
    padded = {name: (t.shapes_[0] or (0,))[-1] for name, t in tensors.items() if t.channels_ == 3}
    assert padded == dict.fromkeys(
        ["data_a", "data_b", *(f"conv1.weight{s}" for s in ("", ".half", ".grad", ".grad_half"))], 4
    )
    assert tensors["conv1.weight"].initial_.fan == 27
    assert {t.channels_ for n, t in tensors.items() if n not in padded} == {None}


def test_a_copied_image_has_its_channels_too() -> None:
    net = ConvNet((8, 8, 4))
    value = net.conv(net.input, 8)
    value = net.add(AddOp, value, net.conv(net.input, 8))
    tensors = World(planned(net.done(value), precision="amp-bf16", channels=3)).tensors
    assert tensors["conv1.input"].channels_ == 3
    assert tensors["conv2.weight"].channels_ == 3
    assert tensors["conv2.weight"].region_ is Region.W_DEEP_CONV


@pytest.mark.parametrize("reader", [ReluOp, GapOp, FlattenOp])
def test_nothing_else_may_read_channels_of_zeros(reader: type[LayerOp]) -> None:
    net = ConvNet((8, 8, 4))
    module = net.finish(net.add(FcOp, net.add(reader, net.input, layer="odd"), out_features=5), 5)
    with pytest.raises(CompileError, match="layer 'odd': it reads 3 real channels and 1 of zeros"):
        run(module, "plan{precision=amp-fp16 channels=3}")


def test_a_grouped_convolution_may_not_either() -> None:
    net = ConvNet((8, 8, 4))
    with pytest.raises(CompileError, match="layer 'conv1': it reads 3 real channels"):
        run(net.done(net.conv(net.input, 8, groups=2)), "plan{precision=amp-fp16 channels=3}")


@pytest.mark.parametrize("precision", ["fp32", "amp-fp16"])
def test_channels_that_do_not_fit_are_refused(precision: str) -> None:
    channels = 3 if precision == "fp32" else 5
    with pytest.raises(CompileError, match=f"@train_base has {channels} channels, the network's input 4"):
        run(two_convolutions((8, 8, 4)), f"plan{{precision={precision} channels={channels}}}")


def behind_a_convolution(kind: type[LayerOp], **options: int) -> World:
    net = ConvNet((8, 8, 12))
    value = net.add(kind, net.conv(net.input, 12), layer="it", **options)
    return World(planned(net.finish(net.add(FcOp, value, out_features=5), 5), batch=3))


WINDOW = {"kernel": 3, "stride": 2, "padding": 1}


def test_max_pool_keeps_where_its_maxima_were() -> None:
    world = behind_a_convolution(MaxPoolOp, **WINDOW)
    assert emitted(world, "it") == [
        ("max_pool_fwd", ("conv1.output",), ("it.output", "it.mask")),
        ("max_pool_bwd", ("it.output.grad", "it.mask"), ("conv1.output.grad",)),
    ]
    assert emitted(world, "it", "infer_a") == [("max_pool_fwd", ("conv1.output.inf",), ("it.output.inf",))]
    mask = world.tensors["it.mask"]
    assert (mask.region_, mask.dtype_, mask.shapes_[0]) == (Region.S_MASK, DType.I8, (3, 4, 4, 12))
    assert {tuple(n.op.params_.items()) for n in world.all_nodes if n.op.layer_ == "it"} == {tuple(WINDOW.items())}


def test_max_pool_needs_no_mask_where_no_gradient_goes() -> None:
    net = ConvNet((8, 8, 8))
    value = net.conv(net.add(MaxPoolOp, net.input, **WINDOW), 8)
    world = World(planned(net.done(value)))
    assert not [n for n in world.tensors if n.endswith(".mask")]
    assert "max_pool_bwd" not in {n.op.kind_ for n in world.all_nodes}


@pytest.mark.parametrize(
    ("kind", "name", "options"),
    [(AvgPoolOp, "avg_pool", WINDOW), (GapOp, "gap", {}), (ChannelPaddingOp, "channel_padding", {})],
)
def test_layers_that_keep_nothing_for_backward(kind: type[LayerOp], name: str, options: dict[str, int]) -> None:
    world = behind_a_convolution(kind, **options)
    assert emitted(world, "it") == [
        (f"{name}_fwd", ("conv1.output",), ("it.output",)),
        (f"{name}_bwd", ("it.output.grad",), ("conv1.output.grad",)),
    ]
    conv1 = {n.op.kind_ for n in world.all_nodes if "conv1.output" in n.reads}
    assert conv1 == {f"{name}_fwd"}


def test_channel_padding_rounds_up_to_eight() -> None:
    assert behind_a_convolution(ChannelPaddingOp).tensors["it.output"].shapes_[0] == (3, 8, 8, 16)
