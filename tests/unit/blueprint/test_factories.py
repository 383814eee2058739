from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import trc.blueprint as bp
from trc.blueprint.layer import MAX_DEPTH, MAX_LAYERS, Layer

any_bp: Any = bp


def test_arguments_become_plain_values_with_defaults() -> None:
    assert bp.conv(np.int64(8), 3).args == (8, 3, 1, 0, False)  # pyright: ignore[reportArgumentType]
    assert type(bp.conv(np.int64(8), 3).args[0]) is int  # pyright: ignore[reportArgumentType]
    assert bp.conv_dw(3, 2, 1).args == (3, 2, 1, False)
    assert bp.group_conv(8, 4, 3).args == (8, 4, 3, 1, 0, False)
    assert bp.bn().args == (0.1, 1e-5)
    assert bp.bn(1).args == (1.0, 1e-5)
    assert bp.fc(10).args == (10, True)
    assert bp.fc(out_features=10, bias=False).args == (10, False)
    assert bp.gap_fc(10).args == (10, True)
    assert bp.leaky_relu().args == (0.01,)
    assert bp.elu().args == (1.0,)
    assert bp.flatten().args == (1,)
    assert bp.input(28, 28, 1).args == (28, 28, 1)


def test_spellings_of_one_node_are_equal() -> None:
    assert bp.cbr(8, 3, 1, 1) == bp.conv_bn_relu(8, 3, 1, 1)
    assert bp.cbr(8, 3).args == (8, 3, 1, 0, 0.1, 1e-5, "relu")
    for act in ("relu6", bp.relu6, bp.relu6()):
        assert bp.cbr(8, 3, act=act).args[-1] == "relu6"
    assert bp.block(64, 256, bp.RESNET_1_3_1) == bp.block(mid=64, out=256, style="RESNET_1_3_1")
    assert bp.block(64, bp.RESNET_3_3) == bp.block(64, style="RESNET_3_3") == bp.block(out=64, style="RESNET_3_3")
    assert bp.block(64, 256, style="RESNET_1_3_1") == bp.block(64, out=256, style="RESNET_1_3_1")
    styles = {(1, 1): "MB_E1_K3", (1, 2): "MB_E1_K3_DS", (6, 1): "MB_E6_K3", (6, 2): "MB_E6_K3_DS"}
    for (expand, stride), style in styles.items():
        assert bp.mbconv(expand, 24, stride) == bp.block(24, style)
    assert bp.seq(bp.relu(), bp.gap()) == bp.seq([bp.relu(), bp.gap()]) == bp.seq((bp.relu(), bp.gap()))


def test_layers_differ_by_kind_argument_child_and_name_but_not_place() -> None:
    assert bp.relu() == bp.relu()
    assert bp.relu().source != bp.relu(name=None).source
    assert hash(bp.relu()) == hash(bp.relu())
    assert bp.relu() != bp.relu6()
    assert bp.fc(10) != bp.fc(11)
    assert bp.fc(10) != bp.fc(10, name="head")
    assert bp.repeat(bp.relu(), 2) != bp.repeat(bp.relu(), 3)
    assert bp.seq(bp.relu()) != bp.seq(bp.gap())


def test_layers_are_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        bp.relu().kind = "gap"  # pyright: ignore[reportAttributeAccessIssue]


BAD: list[tuple[str, type[Exception], str]] = [
    ("conv(0, 3)", ValueError, "conv: argument 'out_ch' must be from 1 to 16777216, not 0"),
    ("conv(8, 0)", ValueError, "conv: argument 'k' must be from 1 to 65536, not 0"),
    ("conv(8, 3, -1)", ValueError, "conv: argument 's' must be from 1 to 65536, not -1"),
    ("conv(8, 3, 1, -1)", ValueError, "conv: argument 'p' must be from 0 to 65536, not -1"),
    ("conv(8.0, 3)", TypeError, "conv: argument 'out_ch' must be a whole number, not 8.0"),
    ("conv(True, 3)", TypeError, "conv: argument 'out_ch' must be a whole number, not true"),
    ("conv(10**5000, 3)", ValueError, "not a number of thousands of digits"),
    ("conv('8', 3)", TypeError, "conv: argument 'out_ch' must be a whole number, not '8'"),
    ("conv(8, 3, bias=1)", TypeError, "conv: argument 'bias' must be true or false, not 1"),
    ("conv(8, 3, kernel=3)", TypeError, "kernel"),
    ("conv(8)", TypeError, "conv.*'k'"),
    ("group_conv(10, 3, 1)", ValueError, "group_conv: argument 'out_ch' must be a multiple of groups=3, not 10"),
    ("bn(1.5)", ValueError, "bn: argument 'momentum' must be from 0 to 1, not 1.5"),
    ("bn(eps=0)", ValueError, "bn: argument 'eps' must be greater than 0 and at most 1, not 0"),
    ("bn(float('nan'))", ValueError, "momentum.*nan"),
    ("bn(10**400)", TypeError, "bn: argument 'momentum' must be a number"),
    ("leaky_relu(float('inf'))", ValueError, "leaky_relu: argument 'slope' must be finite and at least 0, not inf"),
    ("leaky_relu('a')", TypeError, "leaky_relu: argument 'slope' must be a number, not 'a'"),
    ("leaky_relu(-0.5)", ValueError, "leaky_relu: argument 'slope' must be finite and at least 0, not -0.5"),
    ("elu(-1.0)", ValueError, "elu: argument 'alpha' must be finite and greater than 0, not -1.0"),
    ("dropout(1.0)", ValueError, "dropout: argument 'p' must be at least 0 and less than 1, not 1.0"),
    ("dropout(-0.1)", ValueError, "dropout: argument 'p'"),
    ("flatten(2)", ValueError, "flatten: argument 'start_dim' can only be 1"),
    ("maxpool(2, 2, 2)", ValueError, "maxpool: argument 'p' must be less than k=2, not 2"),
    ("avgpool(2, 2, 5)", ValueError, "avgpool: argument 'p' must be less than k=2, not 5"),
    ("cbrp(8, 3, 1, 1, 2, 2, 3)", ValueError, "cbrp: argument 'pp' must be less than pk=2, not 3"),
    ("fc(0)", ValueError, "fc: argument 'out_features' must be from 1"),
    ("fc(10, 1)", TypeError, "fc: argument 'bias' must be true or false, not 1"),
    ("fc(10, name='a b')", ValueError, "fc: argument 'name' must be letters, digits"),
    ("fc(10, name='')", ValueError, "fc: argument 'name'"),
    ("fc(10, name='a' * 201)", ValueError, "fc: argument 'name'"),
    ("fc(10, name='é')", ValueError, "fc: argument 'name'"),
    ("fc(10, name=3)", TypeError, "fc: argument 'name'"),
    ("cbr(8, 3, act='silu')", ValueError, "cbr: argument 'act' must be relu or relu6, not 'silu'"),
    ("cbr(8, 3, act=bp.silu)", ValueError, "cbr: argument 'act' must be relu or relu6, not silu"),
    ("cbr(8, 3, act=3)", TypeError, "cbr: argument 'act' must be relu or relu6, not 3"),
    ("cbr(8, 3, act=bp.relu(name='r'))", TypeError, "cbr: argument 'act'"),
    ("seq()", ValueError, "seq: is empty"),
    ("seq([])", ValueError, "seq: is empty"),
    ("seq(3)", TypeError, "seq: 1 layer given, and number 1 is 3, not a layer"),
    ("seq(bp.gap(), bp.relu)", TypeError, r"number 2 is relu, not a layer; write relu\(\)"),
    ("seq(bp.gap(), bp.input(1, 1, 1))", ValueError, "may only stand first"),
    ("seq(bp.seq(bp.input(1, 1, 1), bp.gap()))", ValueError, "first in the outermost seq"),
    ("add2(bp.relu(), 3)", TypeError, "add2: argument 'stem' must be a layer, not 3"),
    ("add2(bp.relu(), bp.input(1, 1, 1))", ValueError, "add2: argument 'stem'"),
    ("repeat(bp.relu(), 0)", ValueError, "repeat: argument 'times' must be from 1 to 100000, not 0"),
    ("repeat(bp.relu(), 10**9)", ValueError, "repeat: argument 'times'"),
    ("repeat(bp.repeat(bp.relu(), 1000), 1000)", ValueError, "makes 1,000,000 layers when written out"),
    ("block(64, 256, bp.RESNET_3_3)", ValueError, r"style RESNET_3_3 has no argument 'mid'; write block\(out, RESNET"),
    ("block(64, bp.RESNET_1_3_1)", ValueError, r"write block\(mid, out, RESNET_1_3_1\)"),
    ("block(64, 'RESNET')", ValueError, "block: argument 'style' must be one of RESNET_1_3_1, "),
    ("block(64, style=5)", TypeError, "block: argument 'style' must be the name of a style"),
    ("block(64)", TypeError, "block: argument 'style' is missing"),
    ("block(1, 2, 3, 4)", TypeError, "block: takes at most 3 arguments"),
    ("block(1, 'RESNET_3_3', out=2)", TypeError, "block: argument 'out' is given twice"),
    ("block(1, 'RESNET_3_3', outs=2)", TypeError, r"no argument is called 'outs' \(did you mean 'out'\?\)"),
    ("mbconv(3, 24, 1)", ValueError, "mbconv: argument 'expand' must be 1 or 6, not 3"),
    ("mbconv(6, 24, 3)", ValueError, "mbconv: argument 'stride' must be 1 or 2, not 3"),
    ("mbconv(6.0, 24, 1)", TypeError, "mbconv: argument 'expand' must be 1 or 6, not 6.0"),
    ("input(0, 28, 1)", ValueError, "input: argument 'h' must be from 1 to 65536, not 0"),
    ("layer_of('fc', 1, True, 3)", TypeError, "fc: takes at most 2 arguments, not 3"),
    ("layer_of('fc', 1, out_features=3)", TypeError, "fc: argument 'out_features' is given twice"),
    ("layer_of('seq', bp.gap(), x=3)", TypeError, "seq: no argument is called 'x'"),
]


@pytest.mark.parametrize(("call", "error", "message"), BAD, ids=[b[0] for b in BAD])
def test_wrong_arguments_name_factory_and_argument(call: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        eval(f"bp.{call}", {"bp": bp})


def test_size_counts_what_is_written_out_and_nesting_is_bounded() -> None:
    assert bp.seq(bp.relu(), bp.repeat(bp.cbr(8, 3), 4)).size == 13
    assert bp.repeat(bp.relu(), MAX_LAYERS).size == MAX_LAYERS
    layer = bp.relu()
    for _ in range(MAX_DEPTH - 1):
        layer = bp.seq(layer)
    assert layer.depth == MAX_DEPTH
    with pytest.raises(ValueError, match="nest more than 48 deep"):
        bp.seq(layer)
    # Sharing makes the tree exponential; it is refused before anything walks it.
    layer = bp.relu()
    with pytest.raises(ValueError, match="layers when written out"):  # noqa: PT012
        for _ in range(60):
            layer = bp.seq(layer, layer)


def test_a_layer_knows_the_line_and_column_of_the_call() -> None:
    here = bp.relu().source
    layer = bp.seq(bp.fc(3), bp.relu())
    assert here is not None
    assert layer.source is not None
    assert here.file == __file__
    assert layer.source.line == here.line + 1
    column = layer.source.column
    first, second = (child.source for child in layer.children)
    assert first is not None
    assert second is not None
    assert (first.column, second.column) == (column + len("bp.seq("), column + len("bp.seq(bp.fc(3), "))
    assert first.line == here.line + 1


def test_blueprint_takes_the_input_from_the_front_of_its_seq() -> None:
    net = bp.BluePrint(bp.seq(bp.input(28, 28, 1), bp.fc(10)), "net")
    assert net == bp.BluePrint(bp.seq(bp.fc(10)), "net", (28, 28, 1))
    assert net.root.size == 1
    assert net.source == net.root.source
    assert bp.as_blueprint(net) is net
    assert bp.as_blueprint(bp.fc(10)) == bp.BluePrint(bp.fc(10), "model")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: any_bp.BluePrint(3), TypeError, "argument 'root' must be a layer, not 3"),
        (lambda: bp.BluePrint(bp.gap(), "a-b"), ValueError, "argument 'name': it must be letters"),
        (lambda: bp.BluePrint(bp.gap(), "relu"), ValueError, "'relu' is the name of a layer"),
        (lambda: bp.BluePrint(bp.gap(), "true"), ValueError, "'true' has a meaning of its own"),
        (lambda: any_bp.BluePrint(bp.gap(), 3), TypeError, "argument 'name'"),
        (
            lambda: any_bp.BluePrint(bp.gap(), "a", (1, 2)),
            ValueError,
            "must be .height, width, channels., not 2 numbers",
        ),
        (lambda: any_bp.BluePrint(bp.gap(), "a", 28), TypeError, "must be .height, width, channels., not 28"),
        (lambda: any_bp.BluePrint(bp.gap(), "a", (1, 2.0, 3)), TypeError, "width must be a whole number, not 2.0"),
        (lambda: bp.BluePrint(bp.gap(), "a", (0, 2, 3)), ValueError, "height must be from 1 to 65536, not 0"),
        (lambda: bp.BluePrint(bp.seq(bp.input(1, 2, 3), bp.gap()), "a", (1, 1, 1)), ValueError, "give one of the two"),
        (lambda: bp.BluePrint(bp.seq(bp.input(1, 2, 3))), ValueError, "at least one layer after input"),
        (lambda: bp.BluePrint(bp.input(1, 2, 3)), ValueError, "at least one layer after input"),
        (lambda: any_bp.as_blueprint("mlp"), TypeError, "a network is given as a BluePrint or a layer"),
    ],
)
def test_wrong_blueprints(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_a_thousand_layers_are_made_quickly_and_compare() -> None:
    def many() -> Layer:
        return bp.seq(*[layer for _ in range(500) for layer in (bp.fc(64), bp.relu())])

    assert many() == many()
    assert hash(many()) == hash(many())
