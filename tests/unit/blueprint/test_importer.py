from __future__ import annotations

from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from xdsl.dialects.builtin import FileLineColLoc, ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import irdl_op_definition

import trc.blueprint as bp
from tests.unit.blueprint.networks import blueprints
from trc.blueprint.importer import _LOWERINGS  # pyright: ignore[reportPrivateUsage]
from trc.blueprint.layer import MAX_DEPTH
from trc.blueprint.parameters import Parameter, Signature, Whole
from trc.blueprint.signatures import SIGNATURES
from trc.diagnostics import Location
from trc.dialects.arch import ModelOp, UnaryOp, YieldOp
from trc.dialects.parsing import parse_module


def ops_of(module: ModuleOp) -> list[Operation]:
    model = module.body.block.first_op
    assert isinstance(model, ModelOp)
    return list(model.body.block.ops)


def body_text(layer: bp.Layer) -> list[str]:
    return [line.strip() for line in str(bp.import_blueprint(layer)).splitlines()[2:-2]]


def test_every_leaf() -> None:
    cases = {
        bp.conv(
            8, 3, 2, 1, bias=True
        ): "arch.conv %input {out_channels = 8, kernel = 3, stride = 2, padding = 1, bias = true}",
        bp.conv_dw(3, 1, 1): "arch.conv %input {kernel = 3, padding = 1, depthwise}",
        bp.group_conv(8, 2, 3): "arch.conv %input {out_channels = 8, kernel = 3, groups = 2}",
        bp.bn(0.2, 0.001): "arch.bn %input {momentum = 0.2, eps = 0.001}",
        bp.relu(): "arch.relu %input",
        bp.tanh_act(): "arch.tanh %input",
        bp.silu(): "arch.silu %input",
        bp.relu6(): "arch.relu6 %input",
        bp.leaky_relu(0.2): "arch.leaky_relu %input {slope = 0.2}",
        bp.hardswish(): "arch.hardswish %input",
        bp.elu(2): "arch.elu %input {alpha = 2.0}",
        bp.sigmoid(): "arch.sigmoid %input",
        bp.dropout(0.25): "arch.dropout %input {p = 0.25}",
        bp.flatten(): "arch.flatten %input",
        bp.channel_padding(): "arch.channel_padding %input",
        bp.maxpool(3, 2, 1): "arch.max_pool %input {kernel = 3, stride = 2, padding = 1}",
        bp.avgpool(3, 2): "arch.avg_pool %input {kernel = 3, stride = 2}",
        bp.gap(): "arch.gap %input",
        bp.fc(10, False, name="head"): 'arch.fc %input {out_features = 10, bias = false} layer "head"',
        bp.identity(): "arch.identity %input",
        bp.cbr(8, 3, 1, 1, 0.2, 0.01, "relu6"): (
            "arch.cbr %input {out_channels = 8, kernel = 3, padding = 1, act = relu6, momentum = 0.2, eps = 0.01}"
        ),
        bp.cbrp(8, 7, 2, 3, 3, 2, 1): (
            "arch.cbrp %input {out_channels = 8, kernel = 7, stride = 2, padding = 3, pool_kernel = 3, "
            "pool_stride = 2, pool_padding = 1}"
        ),
        bp.gap_fc(10): "arch.gap_fc %input {out_features = 10}",
        bp.block(8, 32, bp.RESNET_1_3_1, name="b"): (
            'arch.block %input {style = RESNET_1_3_1, mid = 8, out = 32} layer "b"'
        ),
        bp.mbconv(6, 24, 2): "arch.block %input {style = MB_E6_K3_DS, out = 24}",
    }
    # A factory without a case here, or without a lowering, is forgotten.
    containers = {"seq", "add2", "repeat", "input"}
    assert (
        {layer.kind for layer in cases} == set(SIGNATURES) - containers - {"conv_bn_relu", "mbconv"} == set(_LOWERINGS)
    )
    for layer, text in cases.items():
        assert body_text(layer) == [f"%0 = {text}", "arch.output %0"], layer


def test_structure() -> None:
    inner = bp.seq(bp.fc(8), bp.relu())
    layer = bp.seq(bp.repeat(inner, 3, name="r"), bp.add2(bp.identity(), inner), bp.seq(bp.gap(), name="tail"), inner)
    assert body_text(layer) == [
        '%0 = arch.repeat %input {times = 3} layer "r" (%1) {',
        "%2 = arch.fc %1 {out_features = 8}",
        "%3 = arch.relu %2",
        "arch.yield %3",
        "}",
        "%1 = arch.add2 %0 shortcut (%2) {",
        "%3 = arch.identity %2",
        "arch.yield %3",
        "} stem (%4) {",
        "%5 = arch.fc %4 {out_features = 8}",
        "%6 = arch.relu %5",
        "arch.yield %6",
        "}",
        '%2 = arch.seq %1 layer "tail" (%3) {',
        "%4 = arch.gap %3",
        "arch.yield %4",
        "}",
        "%3 = arch.seq %2 (%4) {",
        "%5 = arch.fc %4 {out_features = 8}",
        "%6 = arch.relu %5",
        "arch.yield %6",
        "}",
        "arch.output %3",
    ]


def test_name_and_input() -> None:
    net = bp.BluePrint(bp.seq(bp.input(28, 28, 1), bp.fc(10)), "net")
    for module, size in (
        (bp.import_blueprint(net), "28x28x1"),
        (bp.import_blueprint(net, (32, 30, 3)), "32x30x3"),
    ):
        assert f"arch.model @net(%input: tensor<?x{size}xf32>)" in str(module)
    assert "arch.model @model(%input: tensor<?x?x?x?xf32>)" in str(bp.import_blueprint(bp.fc(10)))
    bad: Any = (28, 28)
    with pytest.raises(ValueError, match="input must be"):
        bp.import_blueprint(net, bad)


def test_every_op_has_the_place_of_its_layer() -> None:
    text = "BluePrint net = seq(\n    add2(identity(),\n        fc(10)),\n    relu());"
    module = bp.import_blueprint(bp.parse_blueprint(text, "net.bp"))
    places = {op.name: str(Location.from_attribute(op.location)) for op in module.walk() if not isinstance(op, YieldOp)}
    assert places == {
        "builtin.module": "net.bp:1:17",
        "arch.model": "net.bp:1:17",
        "arch.add2": "net.bp:2:5",
        "arch.identity": "net.bp:2:10",
        "arch.fc": "net.bp:3:9",
        "arch.relu": "net.bp:4:5",
        "arch.output": "net.bp:1:17",
    }
    assert all(isinstance(op.location, FileLineColLoc) for op in module.walk())
    place = Location.from_attribute(ops_of(bp.import_blueprint(bp.fc(10)))[0].location)
    assert place is not None
    assert place.file == __file__


@settings(max_examples=100, deadline=None, derandomize=True)
@given(blueprints)
def test_imported_modules_verify_and_read_back(net: bp.BluePrint) -> None:
    module = bp.import_blueprint(net)
    module.verify()
    assert str(parse_module(str(module), "net.mlir")) == str(module)


def test_the_deepest_nesting_prints_and_reads_back() -> None:
    layer = bp.relu()
    for _ in range(MAX_DEPTH - 1):
        layer = bp.seq(layer, name="a")
    module = bp.import_blueprint(layer)
    module.verify()
    assert str(parse_module(str(module), "net.mlir")) == str(module)
    assert str(module.clone()) == str(module)


@irdl_op_definition
class CubeOp(UnaryOp):
    """A layer of somebody else."""

    name = "test.cube"
    FIELDS: ClassVar[tuple[Any, ...]] = ()

    def __init__(self, x: SSAValue, layer: str | None = None) -> None:
        super().__init__((x,), {}, layer)


def test_a_layer_can_be_added_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trc.blueprint.importer._LOWERINGS", dict(_LOWERINGS))
    before = dict(SIGNATURES)
    try:
        signature = Signature("cube", (Parameter("power", Whole(1, 5), 3),))
        bp.register(signature, lambda x, layer: CubeOp(x, layer.name))
        assert bp.parse_blueprint('cube(2, name="c")').root == bp.layer_of("cube", 2, name="c")
        assert str(bp.layer_of("cube", power=2)) == "cube(2)"
        assert "test.cube" in str(bp.import_blueprint(bp.layer_of("cube")))
        with pytest.raises(ValueError, match="cube: argument 'power' must be from 1 to 5, not 9"):
            bp.layer_of("cube", 9)
        with pytest.raises(ValueError, match="a layer called 'cube' exists already"):
            bp.register(signature, lambda x, layer: CubeOp(x, layer.name))
    finally:
        SIGNATURES.clear()
        SIGNATURES.update(before)
