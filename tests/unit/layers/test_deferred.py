"""Which values are deferred, where they come into memory, and what backward makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp

import trc.layers  # noqa: F401  (registers the descriptors)
from tests.unit.passes.plan.brute import World
from tests.unit.passes.plan.convnets import ConvNet
from tests.unit.passes.plan.nets import planned, run
from trc.dialects.arch import (
    AddOp,
    Bn1dOp,
    Bn2dOp,
    ConvOp,
    FcOp,
    GapOp,
    IdentityOp,
    MaxPoolOp,
    Relu6Op,
    ReluOp,
    SiluOp,
)
from trc_runtime.schema.dtypes import DType
from trc_runtime.schema.regions import Region

Emitted = list[tuple[str, str | None]]


def kinds(module: ModuleOp, step: str = "train_a", **options: str | int) -> Emitted:
    """(kind, layer) of the nodes of layers, once planned."""
    world = World(planned(module, **options))
    return [(n.op.kind_, n.op.layer_) for n in world.nodes(world.steps[step]) if n.op.layer_ is not None]


def between(found: Emitted, first: str, last: str) -> Emitted:
    """The nodes from the first of a kind to the last of another."""
    names = [kind for kind, _ in found]
    return found[names.index(first) : len(names) - names[::-1].index(last)]


def chain() -> ModuleOp:
    net = ConvNet()
    return net.done(net.conv_bn_relu(net.conv_bn_relu(net.input, 8), 16))


def test_a_chain_on_the_cpu() -> None:
    world = World(planned(chain()))
    nodes = [n.op for n in world.nodes(world.steps["train_a"]) if n.op.layer_ not in (None, "softmax_ce", "fc1")]
    assert [(n.kind_, n.layer_) for n in nodes] == [
        ("conv_stats_fwd", "conv1"),
        ("bn_finalize", "bn1"),
        ("conv_norm_stats_fwd", "conv2"),
        ("bn_finalize", "bn2"),
        ("materialise", "relu2"),
        ("gap_fwd", "gap1"),
        ("gap_bwd", "gap1"),
        ("norm_bwd", "bn2"),
        ("conv_norm_bwd_weight", "conv2"),
        ("conv_bwd_data", "conv2"),
        ("norm_bwd", "bn1"),
        ("conv_bwd_weight", "conv1"),
    ]
    by_kind = {n.kind_: n for n in nodes}
    second = by_kind["conv_norm_stats_fwd"]
    assert second.reads_ == ("conv1.output", "conv2.weight", "bn1.scale", "bn1.shift")
    assert second.writes_ == ("conv2.output", "bn2.sum", "bn2.sumsq")
    assert second.params_ == {"stride": 1, "padding": 1, "groups": 1, "act": "relu"}
    assert by_kind["bn_finalize"].reads_[0] == "conv2.output"
    assert by_kind["norm_bwd"].params_ == {"act": "relu"}
    assert by_kind["norm_bwd"].reads_[:4] == ("bn1.output.grad", "conv1.output", "bn1.scale", "bn1.shift")
    features = {n for n, t in world.tensors.items() if t.region_ is Region.F_FEATURE_FP32 and t.shapes_[0]}
    assert features == {"conv1.output", "conv2.output", "relu2.output", "gap1.output", "fc1.output"}


def test_a_chain_where_nothing_was_chosen() -> None:
    """Without plan-select-kernels convolutions are plain, and what they read is made again for backward."""
    rest = "plan-derive-all-shapes,plan-compute-max-slot-bytes,plan-create-memory-plans,graph-build-computation"
    module = run(chain(), f"plan-create-compile-specs,{rest},graph-share-or-clone,graph-schedule-steps")
    world = World(module)
    nodes = [(n.op.kind_, n.op.layer_) for n in world.nodes(world.steps["train_a"]) if n.op.layer_ is not None]
    assert between(nodes, "conv_fwd", "conv_bwd_weight")[:6] == [
        ("conv_fwd", "conv1"),
        ("bn_stats", "bn1"),
        ("bn_finalize", "bn1"),
        ("materialise", "relu1"),
        ("conv_fwd", "conv2"),
        ("bn_stats", "bn2"),
    ]
    (again,) = [n.op for n in world.all_nodes if "relu1.output.bwd" in n.writes]
    assert (again.kind_, again.reads_) == ("materialise", ("conv1.output", "bn1.scale", "bn1.shift"))


def test_scale_and_shift_are_kept_as_values_are() -> None:
    half = World(planned(chain(), precision="amp-fp16")).tensors
    assert (half["bn1.scale"].region_, half["bn1.scale"].dtype_) == (Region.T_TEMP_FP16, DType.F16)
    assert (half["bn1.sum"].region_, half["bn1.saved_mean"].dtype_) == (Region.T_TEMP_FP32, DType.F32)
    assert World(planned(chain(), precision="fp64")).tensors["bn1.scale"].dtype_ is DType.F64


def test_inference_applies_norm_and_activation_in_place() -> None:
    world = World(planned(chain()))
    nodes = [n.op for n in world.nodes(world.steps["infer_a"]) if n.op.layer_ in ("conv1", "bn1", "relu1")]
    assert [(n.kind_, n.layer_) for n in nodes] == [("conv_fwd", "conv1"), ("affine_fwd", "relu1")]
    assert nodes[1].reads_ == ("conv1.output.inf", "bn1.eq_scale", "bn1.eq_bias")
    assert nodes[1].params_ == {"act": "relu"}
    assert world.tensors["conv1.output.inf"].offset_ == world.tensors["relu1.output.inf"].offset_
    assert "bn1.output.inf" not in world.tensors


def test_a_convolution_with_two_readers_keeps_its_norm_in_memory() -> None:
    net = ConvNet()
    conv = net.conv(net.input, 8)
    found = kinds(net.done(net.add(AddOp, net.add(Bn2dOp, conv), conv)))
    assert ("bn_fwd", "bn1") in found
    assert ("bn_bwd", "bn1") in found
    assert not {"bn_finalize", "conv_stats_fwd", "materialise"} & {kind for kind, _ in found}


def test_a_norm_behind_anything_but_a_convolution_stays_in_memory() -> None:
    net = ConvNet()
    value = net.add(Bn2dOp, net.add(MaxPoolOp, net.conv(net.input, 8), kernel=2, stride=2))
    value = net.add(Bn1dOp, net.add(FcOp, net.add(GapOp, value), out_features=8))
    found = kinds(net.finish(net.add(FcOp, value, out_features=5), 5), batch=4)
    assert [layer for kind, layer in found if kind == "bn_fwd"] == ["bn1", "bn2"]
    assert "bn_finalize" not in {kind for kind, _ in found}


def test_an_activation_folds_into_a_norm_that_only_it_reads() -> None:
    net = ConvNet()
    norm = net.conv_bn(net.input, 8)
    found = kinds(net.done(net.conv(net.add(Relu6Op, norm), 8)))
    assert not [kind for kind, _ in found if kind.startswith("relu6")]
    assert ("conv_norm_fwd", "conv2") in found


def test_an_activation_does_not_fold_where_the_norm_has_another_reader() -> None:
    net = ConvNet()
    norm = net.conv_bn(net.input, 8)
    module = net.done(net.add(AddOp, net.add(ReluOp, norm), net.add(SiluOp, norm)))
    world = World(planned(module))
    nodes = [n.op for n in world.nodes(world.steps["train_a"])]
    written = [(n.kind_, n.layer_, n.params_.get("act")) for n in nodes if "bn1.output" in n.writes_]
    assert written == [("materialise", "bn1", "none")], "one node for both readers"
    found = [n.kind_ for n in nodes]
    assert {"relu_fwd", "silu_fwd", "relu_bwd", "silu_bwd"} <= set(found)
    again = [(n.kind_, n.layer_) for n in nodes if "bn1.output.bwd" in n.writes_]
    assert again == [("materialise", "bn1")], "silu's backward reads its input"
    (back,) = [n for n in nodes if n.kind_ == "norm_bwd"]
    assert back.params_ == {"act": "none"}


def test_a_second_activation_does_not_fold() -> None:
    net = ConvNet()
    found = kinds(net.done(net.add(ReluOp, net.conv_bn_relu(net.input, 8))))
    assert [layer for kind, layer in found if kind == "relu_fwd"] == ["relu2"]
    assert [layer for kind, layer in found if kind == "materialise"] == ["relu1"]


def test_other_activations_take_it_from_memory() -> None:
    net = ConvNet()
    found = kinds(net.done(net.add(SiluOp, net.conv_bn(net.input, 8))))
    assert ("materialise", "bn1") in found
    assert ("silu_fwd", "silu1") in found


def test_an_identity_hides_nothing() -> None:
    net = ConvNet()
    value = net.add(ReluOp, net.add(IdentityOp, net.conv_bn(net.input, 8)))
    found = kinds(net.done(net.conv(value, 8)))
    assert ("conv_norm_fwd", "conv2") in found
    assert not [kind for kind, _ in found if kind.startswith("relu")]


def block(net: ConvNet, shortcut: str) -> ModuleOp:
    x = net.add(MaxPoolOp, net.conv(net.input, 8), kernel=2, stride=2)
    side = {"plain": x, "conv": None}.get(shortcut)
    if side is None:
        side = net.conv(x, 8, 1) if shortcut == "conv" else net.conv_bn(x, 8, 1)
    if shortcut == "activated":
        side = net.add(ReluOp, side)
    stem = net.conv_bn(net.conv_bn_relu(x, 8), 8)
    return net.done(net.conv(net.add(ReluOp, net.add(AddOp, side, stem)), 8))


@pytest.mark.parametrize(
    ("shortcut", "operands"),
    [
        ("plain", ("max_pool1.output",)),
        ("conv", ("conv2.output",)),
        ("projection", ("conv2.output", "bn1.scale", "bn1.shift")),
        ("activated", ("relu1.output",)),
    ],
)
def test_the_end_of_a_block_is_one_node(shortcut: str, operands: tuple[str, ...]) -> None:
    world = World(planned(block(ConvNet(), shortcut)))
    nodes = [n.op for n in world.nodes(world.steps["train_a"])]
    (end,) = [n for n in nodes if n.kind_ == "norm_add_act_fwd"]
    assert end.params_ == {"act": "relu"}
    assert end.reads_[3:] == operands
    assert end.writes_ == (f"{end.layer_}.output",)
    assert "add_fwd" not in [n.kind_ for n in nodes if ".grad" not in str(n.writes_)]
    # the mask of the end comes from its result; the sum then passes the gradient to both sides
    (back,) = [n for n in nodes if n.kind_ == "relu_bwd" and n.layer_ == end.layer_]
    assert back.reads_[1] == end.writes_[0]
    readers = {n.kind_ for n in nodes if back.writes_[0] in n.reads_}
    assert "norm_bwd" in readers
    conv = next(n for n in nodes if n.kind_.startswith("conv") and end.writes_[0] in n.reads_)
    assert conv.kind_ == "conv_fwd", "a sum is read from memory"
    inference = [n.op.kind_ for n in world.nodes(world.steps["infer_a"])]
    assert "affine_add_act_fwd" in inference


def test_a_sum_with_two_readers_is_written_without_the_activation() -> None:
    net = ConvNet()
    total = net.add(AddOp, net.conv(net.input, 8), net.conv_bn(net.input, 8))
    module = net.done(net.add(AddOp, net.add(ReluOp, total), total))
    world = World(planned(module))
    nodes = [n.op for n in world.nodes(world.steps["train_a"])]
    (end,) = [n for n in nodes if n.kind_ == "norm_add_act_fwd"]
    assert (end.writes_, end.params_) == (("add1.output",), {"act": "none"})
    assert "relu_fwd" in [n.kind_ for n in nodes]


def test_a_sum_of_values_in_memory_stays_a_sum() -> None:
    net = ConvNet()
    total = net.add(AddOp, net.conv(net.input, 8), net.conv(net.input, 8))
    found = kinds(net.done(net.add(ReluOp, total)))
    assert ("add_fwd", "add1") in found
    assert ("relu_fwd", "relu1") in found


def test_a_sum_of_a_value_with_itself() -> None:
    net = ConvNet()
    norm = net.conv_bn(net.input, 8)
    world = World(planned(net.done(net.add(AddOp, norm, norm))))
    (end,) = [n.op for n in world.nodes(world.steps["train_a"]) if n.op.kind_ == "norm_add_act_fwd"]
    assert end.reads_ == ("conv1.output", "bn1.scale", "bn1.shift") * 2


def forced(tmp_path: Path, module: ModuleOp, choices: dict[str, str], **options: str | int) -> Emitted:
    path = tmp_path / "choices.json"
    path.write_text(json.dumps(choices))
    return kinds(module, choices=f'"{path}"', **options)


def test_a_norm_may_be_told_to_stay_in_memory(tmp_path: Path) -> None:
    found = forced(tmp_path, chain(), {"bn1": "materialised"})
    assert ("conv_fwd", "conv1") in found, "nobody wants its sums"
    assert {("bn_fwd", "bn1"), ("relu_fwd", "relu1"), ("conv_stats_fwd", "conv2")} <= set(found)


def test_each_form_may_be_taken_alone(tmp_path: Path) -> None:
    plain = forced(tmp_path, chain(), {"conv2": "plain"})
    assert ("materialise", "relu1") in plain
    assert {("conv_fwd", "conv2"), ("bn_stats", "bn2"), ("conv_bwd_weight", "conv2")} <= set(plain)
    assert [k for k, _ in plain].count("materialise") == 3, "relu1 twice, relu2 once"
    only_backward = forced(tmp_path, chain(), {"conv2": "wgrad_norm"})
    assert {("conv_fwd", "conv2"), ("conv_norm_bwd_weight", "conv2")} <= set(only_backward)
    only_forward = forced(tmp_path, chain(), {"conv2": "norm+stats"})
    assert {("conv_norm_stats_fwd", "conv2"), ("conv_bwd_weight", "conv2")} <= set(only_forward)


def test_a_materialised_value_serves_all_who_need_it() -> None:
    net = ConvNet()
    value = net.conv_bn_relu(net.input, 8)
    a = net.add(MaxPoolOp, value, kernel=3, stride=1, padding=1)
    b = net.add(SiluOp, value)
    c = net.add(ConvOp, value, out_channels=8, kernel=1)
    found = kinds(net.done(net.add(AddOp, net.add(AddOp, a, b), c)))
    assert [layer for kind, layer in found if kind == "materialise"] == ["relu1", "relu1"], "forward, and for silu"
    assert ("conv_norm_fwd", "conv2") in found, "who can do without does"
