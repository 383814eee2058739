"""Descriptors and their registry."""

from __future__ import annotations

import zlib

import pytest
from xdsl.dialects.builtin import ModuleOp

import trc.layers  # noqa: F401  (registers the descriptors)
from tests.unit.passes.plan.brute import World
from tests.unit.passes.plan.nets import ACTIVATIONS, Net, planned
from trc.dialects.arch import (
    AddOp,
    Bn1dOp,
    CbrOp,
    DropoutOp,
    EluOp,
    FcOp,
    FlattenOp,
    IdentityOp,
    LayerOp,
    LeakyReluOp,
    Relu6Op,
    ReluOp,
    SoftmaxCeOp,
)
from trc.layers.descriptor import BaseDescriptor
from trc.layers.registry import find, known_ops, register
from trc_runtime.schema.dtypes import DType
from trc_runtime.schema.plan import Initial
from trc_runtime.schema.regions import Region


def test_the_layers_of_part_one_are_known() -> None:
    ops = (*ACTIVATIONS, AddOp, Bn1dOp, DropoutOp, FcOp, FlattenOp, IdentityOp, SoftmaxCeOp)
    assert set(known_ops()) >= {op.name for op in ops}


def test_a_second_descriptor_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'arch\.fc' has a descriptor already"):
        register(FcOp, BaseDescriptor())  # type: ignore[arg-type]


def test_a_merged_layer_has_none_but_is_known() -> None:
    net = Net((8, 8, 8))
    value = net.add(CbrOp, net.input, out_channels=8, kernel=3)
    assert isinstance(value.owner, LayerOp)
    assert find(value.owner) is None
    assert "arch.cbr" in known_ops()


def behind(kind: type[LayerOp], **options: float) -> ModuleOp:
    """A layer behind a fully connected one and in front of a batch norm and another."""
    net = Net((1, 1, 6))
    value = net.add(FcOp, net.input, out_features=8)
    value = net.add(kind, value, layer="it", **options)
    return net.finish(net.add(FcOp, net.add(Bn1dOp, value), out_features=5), 5)


def test_fc_tensors() -> None:
    net = Net((2, 3, 8))
    value = net.add(FcOp, net.input, out_features=7)
    module = net.finish(net.add(FcOp, value, out_features=5, bias=False), 5)
    tensors = World(planned(module, precision="amp-fp16", batch=4)).tensors
    weight = tensors["fc1.weight"]
    assert weight.shapes_[0] == (7, 1, 1, 48)
    assert weight.initial_ == Initial("kaiming_uniform", fan=48)
    assert (weight.dtype_, tensors["fc1.weight.half"].dtype_) == (DType.F32, DType.F16)
    assert tensors["fc1.weight.half"].region_ is Region.A_FC_WEIGHT
    assert tensors["fc1.weight.grad"].region_ is Region.G_FC_WEIGHT
    assert tensors["fc1.weight.m"].region_ is Region.M_FC_WEIGHT
    assert tensors["fc1.bias"].shapes_[0] == (1, 1, 1, 7)
    assert "fc2.bias" not in tensors
    assert not [n for n in tensors if n.startswith("fc2.bias")]


def test_mixed_precision_reads_the_half_weight_and_scales() -> None:
    net = Net((1, 1, 6))
    world = World(planned(net.finish(net.add(FcOp, net.input, out_features=5), 5), precision="amp-fp16"))
    forward = [n for n in world.all_nodes if n.op.kind_ == "fc_fwd"]
    assert forward
    assert all("fc1.weight.half" in n.reads and "fc1.weight" not in n.reads for n in forward)
    assert world.tensors["scaling"].initial_.value == 8192
    assert not [t for t in world.tensors.values() if t.region_ is Region.G_FC_WEIGHT_FP16], "dead"


@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_activation_nodes(kind: type[LayerOp]) -> None:
    world = World(planned(behind(kind)))
    name = kind.name.removeprefix("arch.")
    (forward,) = [n for n in world.nodes(world.steps["train_a"]) if n.op.kind_ == f"{name}_fwd"]
    (backward,) = [n for n in world.nodes(world.steps["train_a"]) if n.op.kind_ == f"{name}_bwd"]
    saved = "fc1.output" if name in ("silu", "hardswish") else "it.output"
    assert forward.op.reads_ == ("fc1.output",)
    assert backward.op.reads_ == ("it.output.grad", saved)
    assert backward.op.params_ == forward.op.params_


@pytest.mark.parametrize(("kind", "act"), [(ReluOp, "relu"), (Relu6Op, "relu6")])
def test_a_rectifier_between_products_is_part_of_them(kind: type[LayerOp], act: str) -> None:
    net = Net((2, 3, 2))
    value = net.add(FcOp, net.add(FlattenOp, net.input), out_features=8)
    value = net.add(kind, value, layer="it")
    world = World(planned(net.finish(net.add(FcOp, value, out_features=5), 5)))
    nodes = {(n.op.kind_, n.op.layer_): n.op for n in world.nodes(world.steps["train_a"])}
    assert not any(name.startswith("relu") for name, _ in nodes)
    forward, backward = nodes["fc_fwd", "it"], nodes["fc_bwd_data", "fc2"]
    assert forward.writes_ == ("it.output",)
    assert backward.reads_ == ("fc2.output.grad", "fc2.weight", "it.output")
    assert backward.writes_ == ("fc1.output.grad",)
    assert forward.params_ == backward.params_ == {"act": act}
    assert nodes["fc_fwd", "fc2"].params_ == {"act": "none"}
    assert not {"fc1.output", "it.output.grad"} & set(world.tensors)


def test_a_rectifier_with_two_readers_keeps_its_backward() -> None:
    net = Net((2, 3, 2))
    value = net.add(FcOp, net.add(FlattenOp, net.input), out_features=8)
    value = net.add(ReluOp, value, layer="it")
    value = net.add(AddOp, value, net.add(FcOp, value, out_features=8))
    world = World(planned(net.finish(net.add(FcOp, value, out_features=5), 5)))
    nodes = {(n.op.kind_, n.op.layer_): n.op for n in world.nodes(world.steps["train_a"])}
    assert nodes["fc_fwd", "it"].params_ == {"act": "relu"}
    assert nodes["fc_bwd_data", "fc2"].params_ == {"act": "none"}
    assert nodes["relu_bwd", "it"].writes_ == ("fc1.output.grad",)


def test_a_product_that_reads_the_input_is_computed_from_its_own_buffer() -> None:
    net = Net((1, 1, 6))
    value = net.add(ReluOp, net.add(FcOp, net.input, out_features=8))
    world = World(planned(net.finish(net.add(FcOp, value, out_features=5), 5)))
    for letter in "ab":
        first = [n.op for n in world.nodes(world.steps[f"train_{letter}"]) if n.op.layer_ == "fc1"]
        assert [n.kind_ for n in first] == ["fc_fwd", "fc_bwd_weight", "fc_bwd_bias"]
        assert first[0].reads_[0] == first[1].reads_[1] == f"data_{letter}"


def test_activation_parameters() -> None:
    for kind, name, value in ((LeakyReluOp, "slope", 0.2), (EluOp, "alpha", 0.7)):
        world = World(planned(behind(kind, **{name: value})))
        found = [n.op.params_ for n in world.all_nodes if n.op.layer_ == "it"]
        assert found == [{name: value}] * 4


def test_dropout() -> None:
    world = World(planned(behind(DropoutOp, p=0.25), batch=3))
    (forward,) = [n.op for n in world.nodes(world.steps["train_a"]) if n.op.kind_ == "dropout_fwd"]
    assert forward.params_ == {"p": 0.25, "stream": zlib.crc32(b"dropout/it")}
    assert forward.scalars_ == ("seed", "iteration")
    mask = world.tensors["it.mask"]
    assert (mask.region_, mask.dtype_, mask.shapes_[0], mask.shapes_[4]) == (
        Region.S_MASK,
        DType.I8,
        (3, 1, 1, 8),
        None,
    )


def test_batch_norm_tensors() -> None:
    tensors = World(planned(behind(Bn1dOp, momentum=0.2, eps=1e-3), batch=3)).tensors
    ones = {n for n, t in tensors.items() if t.layer_ == "it" and t.initial_ == Initial("constant", 1.0)}
    assert ones == {"it.weight", "it.running_var", "it.next_var", "it.eq_scale"}
    regions = {n.removeprefix("it."): t.region_.name for n, t in tensors.items() if t.layer_ == "it"}
    assert regions["running_mean"] == "B_PREV_MEAN"
    assert regions["next_var"] == "B_NEXT_VAR"
    assert regions["weight"] == "W_BN_WEIGHT"
    assert regions["bias.grad"] == "G_BN_BIAS"
    assert regions["weight.v"] == "V_BN_WEIGHT"


def test_a_layer_from_outside_needs_no_pass() -> None:
    """A new op with a descriptor goes through all passes, though none of them has heard of it."""
    from xdsl.irdl import irdl_op_definition

    from trc.dialects.arch.base import SameShapeOp
    from trc.layers.activation import ActivationDescriptor

    @irdl_op_definition
    class SoftsignOp(SameShapeOp):
        name = "arch.test_softsign"

        def __init__(self, x, layer=None):  # type: ignore[no-untyped-def]
            super().__init__((x,), {}, layer)

    from trc.layers.registry import _DESCRIPTORS
    from trc_runtime.schema.kinds import KINDS

    try:
        register(SoftsignOp, ActivationDescriptor("test_softsign"))
        world = World(planned(behind(SoftsignOp)))
        assert {"test_softsign_fwd", "test_softsign_bwd"} <= {n.op.kind_ for n in world.all_nodes}
    finally:
        _DESCRIPTORS.pop(SoftsignOp.name, None)
        for name in ("test_softsign_fwd", "test_softsign_bwd"):
            KINDS._kinds.pop(name, None)
