from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

import trc
from trc.codegen.cuda import cudnn
from trc.codegen.cuda.cudnn import CudnnNode, Description
from trc.codegen.cuda.lowering.launch import S
from trc.codegen.cuda.lowering.view import NodeView
from trc.codegen.cuda.program import lower_plan
from trc.models import ZOO
from trc.session.compiling import lower_to_plan
from trc_runtime.cuda import dnn
from trc_runtime.cuda.errors import MissingExtra
from trc_runtime.schema.plan import Plan

PROPERTIES = Path(__file__).resolve().parents[4] / "examples" / "devices" / "h200.json"


LARGE = 1 << 16
"""A batch with which the products of `net` are cuDNN's, in half precision too."""


def net(
    *layers: trc.Layer, size: tuple[int, int, int] = (8, 8, 8), precision: str = "amp-fp16", batch: int = 4
) -> Plan:
    blueprint = trc.BluePrint(trc.seq(*layers, trc.fc(10)), name="net", input=size)
    return lower_to_plan(blueprint, target="cuda", precision=precision, batch=batch)


def plan_all(plan: Plan) -> None:
    """Let cuDNN plan every graph for an H200."""
    from trc_runtime.cuda._cudnn import Planner

    try:
        planner = Planner(properties=PROPERTIES.read_text(encoding="utf-8"))
    except MissingExtra as err:
        pytest.skip(str(err))
    for key, description in lower_plan(plan).descriptions.items():
        assert dnn.make_plan(planner, key, description).plan.serialise()


def node(plan: Plan, kind: str, layer: str, column: int = 0) -> CudnnNode:
    index = next(i for i, n in enumerate(plan.nodes) if (n.kind, n.layer) == (kind, layer))
    view = NodeView(plan, index, column)
    assert cudnn.owns(view)
    return cudnn.lower(view)


def offset(plan: Plan, name: str) -> int:
    return next(t.offset for t in plan.tensors if t.name == name)


def test_half_features_have_padded_rows_and_weights_have_none() -> None:
    plan = net(trc.conv(12, 3, 2, 1), trc.relu(), trc.conv(20, 3, 1, 1), trc.relu())
    found = node(plan, "conv_fwd", "conv2")
    assert found.description["tensors"] == {
        "x": {"dim": [4, 12, 4, 4], "stride": [4 * 4 * 16, 1, 4 * 16, 16], "dtype": "f16"},
        "weight": {"dim": [20, 12, 3, 3], "stride": [108, 1, 36, 12], "dtype": "f16"},
        "y": {"dim": [4, 20, 4, 4], "stride": [4 * 4 * 24, 1, 4 * 24, 24], "dtype": "f16"},
    }
    assert (found.description["padding"], found.description["stride"], found.description["groups"]) == (1, 1, 1)
    assert found.bindings["weight"] == offset(plan, "conv2.weight.half")
    assert found.after == ()


def test_a_first_convolution_sees_the_added_channel() -> None:
    plan = net(trc.conv(8, 3, 1, 1), trc.relu(), size=(8, 8, 3))
    tensors = node(plan, "conv_fwd", "conv1").description["tensors"]
    assert tensors["x"]["dim"] == [4, 4, 8, 8]
    assert tensors["x"]["stride"] == [256, 1, 32, 4]
    assert tensors["weight"] == {"dim": [8, 4, 3, 3], "stride": [36, 1, 12, 4], "dtype": "f16"}
    single = net(trc.conv(8, 3, 1, 1), trc.relu(), size=(8, 8, 3), precision="fp32")
    assert node(single, "conv_fwd", "conv1").description["tensors"]["x"]["dim"] == [4, 3, 8, 8]


def test_a_bias_is_fused_in_single_precision_and_follows_in_half() -> None:
    single = node(net(precision="fp32"), "fc_fwd", "fc1")
    assert single.description["tensors"]["bias"] == {"dim": [1, 10, 1, 1], "stride": [10, 1, 10, 10], "dtype": "f32"}
    assert single.after == ()
    half = node(net(batch=LARGE), "fc_fwd", "fc1")
    assert "bias" not in half.description["tensors"]
    assert [launch.instance.name for launch in half.after] == ["add_bias__f16_c10_p16"]


@pytest.mark.parametrize(("bias", "act"), [(True, "add_bias__f16_c512_p512_relu"), (False, "relu_fwd__f16")])
def test_the_activation_of_a_product_follows_in_place_and_its_derivative_too(bias: bool, act: str) -> None:
    plan = net(trc.flatten(), trc.fc(512), trc.relu(), trc.fc(512, bias), trc.relu(), batch=LARGE)
    forward = node(plan, "fc_fwd", "relu2")
    assert forward.description["act"] == "none"
    (launch,) = forward.after
    assert launch.instance.name == act
    assert str(launch.args[0]) == f"P({offset(plan, 'relu2.output')})"
    backward = node(plan, "fc_bwd_data", "fc2")
    assert set(backward.description["tensors"]) == {"dy", "weight", "dx"}
    (launch,) = backward.after
    assert launch.instance.name == "relu_bwd__f16"
    dx = offset(plan, "fc1.output.grad")
    assert [str(a) for a in launch.args[:3]] == [f"P({dx})", f"P({offset(plan, 'relu1.output')})", f"P({dx})"]


def test_statistics_are_summed_by_our_own_kernels() -> None:
    """cuDNN's come out in another order from run to run. A bias is left to the batch norm."""
    layers = trc.conv(16, 3, 1, 1, bias=True), trc.bn(), trc.relu(), trc.conv(16, 3, 1, 1), trc.bn(), trc.relu()
    plain = node(net(*layers), "conv_stats_fwd", "conv1")
    assert plain.description["op"] == "conv_fwd"
    assert set(plain.description["tensors"]) == {"x", "weight", "y"}
    names = [launch.instance.name.split("__")[0] for launch in plain.after]
    assert names == ["moments", "store_moments"]
    fused = node(net(*layers), "conv_norm_stats_fwd", "conv2")
    assert fused.description["op"] == "conv_norm_stats_fwd"
    assert all(isinstance(fused.bindings[role], S) for role in ("sum", "sumsq"))
    assert [launch.instance.name.split("__")[0] for launch in fused.after] == ["moments", "store_moments"]


def test_half_weight_gradients_of_fc_are_widened_from_scratch_memory() -> None:
    plan = net(trc.flatten(), batch=LARGE)
    found = node(plan, "fc_bwd_weight", "fc1")
    assert found.bindings["dweight"] == S(0)
    assert found.description["tensors"]["dweight"]["dtype"] == "f16"
    assert found.scratch >= 10 * 512 * 2
    (widen,) = found.after
    assert [str(a) for a in widen.args] == ["S(0)", f"P({offset(plan, 'fc1.weight.grad')})", "I(5120)"]
    single = node(net(trc.flatten(), precision="fp32"), "fc_bwd_weight", "fc1")
    assert single.after == ()
    assert single.scratch == 0


def test_the_prologue_and_its_rectifier_are_described() -> None:
    plan = net(trc.conv(16, 3, 1, 1), trc.bn(), trc.relu(), trc.conv(16, 3, 1, 1), trc.bn(), trc.relu())
    forward = node(plan, "conv_norm_stats_fwd", "conv2").description
    assert forward["act"] == "relu"
    assert forward["tensors"]["scale"] == {"dim": [1, 16, 1, 1], "stride": [16, 1, 16, 16], "dtype": "f16"}
    assert forward["tensors"]["sum"]["dtype"] == "f32"
    assert node(plan, "conv_norm_bwd_weight", "conv2").description["act"] == "relu"


def test_relu6_has_no_prologue() -> None:
    """cuDNN 9.19 plans it and forgets the upper clip, seen on an H200."""
    plan = net(trc.conv(16, 3, 1, 1), trc.bn(), trc.relu6(), trc.conv(16, 3, 1, 1), trc.bn(), trc.relu())
    kinds = {n.kind for n in plan.nodes if n.layer == "conv2"}
    assert not any(kind.startswith("conv_norm") for kind in kinds)
    assert "materialise" in {n.kind for n in plan.nodes}


@pytest.mark.parametrize("kernel", [1, 4, 5, 6, 7, 11])
@pytest.mark.parametrize("stride", [1, 2])
def test_large_windows_have_no_prologue(kernel: int, stride: int) -> None:
    """cuDNN 9.19 has no engine with a prologue for more than 32 places of a window."""
    layers = trc.conv(16, 3, 1, 1), trc.bn(), trc.relu(), trc.conv(8, kernel, stride, kernel // 2), trc.bn(), trc.relu()
    plan = net(*layers, trc.gap(), size=(32, 32, 3))
    kinds = {n.kind for n in plan.nodes if n.layer == "conv2" and n.computation == "train"}
    norms = {"conv_norm_stats_fwd", "conv_norm_bwd_weight"}
    assert kinds & norms == (norms if kernel <= 5 else set())
    assert ("conv_stats_fwd" in kinds) == (kernel > 5)
    plan_all(plan)


def test_depthwise_is_not_cudnns_and_other_groups_are() -> None:
    plan = net(trc.conv_dw(3, 1, 1), trc.relu(), trc.group_conv(16, 4, 3, 1, 1), trc.relu())
    owned = {
        (n.kind, n.layer): cudnn.owns(NodeView(plan, i, 0))
        for i, n in enumerate(plan.nodes)
        if n.kind.startswith("conv") and n.computation == "train"
    }
    depthwise = next(layer for (_, layer), mine in owned.items() if not mine)
    assert {layer for (_, layer), mine in owned.items() if mine}.isdisjoint({depthwise})
    grouped = next(layer for (_, layer), mine in owned.items() if mine)
    assert grouped is not None
    found = node(plan, "conv_fwd", grouped).description
    assert found["groups"] == 4
    assert found["tensors"]["weight"]["dim"] == [16, 2, 3, 3]


def test_precisions_differ_in_what_they_allow() -> None:
    assert node(net(precision="tf32"), "fc_fwd", "fc1").description["compute"] == "tf32"
    assert node(net(precision="fp32"), "fc_fwd", "fc1").description["compute"] == "f32"
    assert node(net(precision="amp-bf16", batch=LARGE), "fc_fwd", "fc1").description["dtype"] == "bf16"


def test_a_key_depends_on_what_a_plan_depends_on() -> None:
    plan = net(trc.conv(16, 3, 1, 1), trc.relu(), trc.conv(16, 3, 1, 1), trc.relu(), trc.conv(16, 3, 1, 1))
    second, third = (node(plan, "conv_fwd", name) for name in ("conv2", "conv3"))
    assert second.key == third.key
    assert second.bindings != third.bindings
    other = cast(Description, {**second.description, "compute": "tf32"})
    assert cudnn.key_of(other) != second.key
    reordered = cast(Description, dict(reversed(list(second.description.items()))))
    assert cudnn.key_of(reordered) == second.key


@pytest.mark.parametrize("model", ["mlp", "lenet5", "resnet18", "vgg16_bn", "mobilenet_v2"])
def test_descriptions_are_what_the_runtime_takes(model: str) -> None:
    for precision in ("amp-fp16", "fp32"):
        plan = lower_to_plan(ZOO[model](), target="cuda", precision=precision, batch=8)
        for description in lower_plan(plan).descriptions.values():
            assert dnn.problems_of(description) == []


@pytest.mark.parametrize("precision", ["amp-fp16", "amp-bf16", "fp32"])
@pytest.mark.parametrize("model", ["lenet5", "resnet18"])
def test_every_graph_has_a_deterministic_engine_without_a_device(model: str, precision: str) -> None:
    plan_all(lower_to_plan(ZOO[model](), target="cuda", precision=precision, batch=8))
