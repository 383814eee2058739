"""YAML of the ArchPlan: lossless, and refusing what it does not know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr, UnitAttr
from xdsl.ir import Block, Region, SSAValue

import trc
from trc.diagnostics import CompileError
from trc.dialects.arch import UNKNOWN, Arch, LayerOp, ModelOp, OutputOp, tensor_of
from trc.dialects.arch.base import BoolField, EnumField, Field, FloatField, IntField, UnitField
from trc.dialects.parsing import parse_module
from trc.dialects.verifier import problems
from trc.interchange.arch_yaml import from_yaml, to_yaml

MODELS = sorted(Path("examples/models").glob("*.bp"))
SMALL = trc.BluePrint(
    trc.seq(trc.conv(4, 3, p=1), trc.bn(momentum=0.2, eps=1e-3), trc.leaky_relu(), trc.elu(), trc.fc(3, bias=False)),
    name="small",
    input=(5, 5, 1),
)


@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_every_model_round_trips(path: Path, fuse: bool) -> None:
    module = trc.lower(path, to="arch", fuse=fuse)
    again = from_yaml(to_yaml(module))
    assert str(again) == str(module)


def test_parameters_survive() -> None:
    document = yaml.safe_load(to_yaml(trc.lower(SMALL, to="arch", fuse=False)))
    layers = {layer["name"]: layer for layer in document["layers"]}
    assert layers["bn1"]["params"] == {"momentum": 0.2, "eps": 1e-3}
    assert layers["fc1"]["params"]["bias"] is False
    assert document["input"] == [5, 5, 1]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("version: trc-arch-1", "version: 9", "version is 9, this trc reads 'trc-arch-1'"),
        ("model: small", "modle: small", "unknown key 'modle'; did you mean 'model'"),
        ("op: fc", "op: fcc", "unknown op 'fcc'; did you mean 'fc'"),
        ("eps: 0.001", "epsilon: 0.001", "layer 'bn1': params: unknown key 'epsilon'"),
        ("inputs: [conv1]", "inputs: [conv9]", "there is no layer 'conv9' above; did you mean 'conv1'"),
        ("inputs: [conv1]", "inputs: [conv1, conv1]", "layer 'bn1': bn2d takes 1 inputs, not 2"),
        ("name: bn1", "name: conv1", "the name 'conv1' is given twice"),
        ("output: softmax_ce", "output: 3", "output: there is no layer 3"),
        ("input: [5, 5, 1]", "input: [5, 5]", r"input must be \[height, width, channels\]"),
        ("input: [5, 5, 1]", "input: [5, 5, true]", r"input must be \[height, width, channels\]"),
        ("eps: 0.001", "eps: true", "layer 'bn1': params: eps is True, not a number"),
        ("eps: 0.001", "eps: null", "layer 'bn1': params: eps is None, not a number"),
        ("kernel: 3", "kernel: 3.0", "layer 'conv1': params: kernel is 3.0, not a whole number"),
        ("kernel: 3", "kernel: true", "layer 'conv1': params: kernel is True, not a whole number"),
        ("kernel: 3", "kernel: 0", "kernel is 0 and should be at least 1"),
        ("kernel: 3", "kernel: 99999999999999999999", "layer 'conv1': params: 9+ does not fit into 64 bits"),
        ("kernel: 3", f"kernel: {'9' * 5000}", "not YAML"),
        ("bias: false}", "bias: 0}", "layer 'conv1': params: bias is 0, not true or false"),
        ("bias: false}", "bias: false, bias: false}", "not YAML: the key 'bias' is given twice"),
        ("bias: false}", "bias: false, depthwise: 3}", "depthwise is 3, but it is true or left out"),
        ("first: true", "first: 1", "layer 'conv1': first is true or left out, not 1"),
        ("model: small", "model: small\nmodel: small", "not YAML: the key 'model' is given twice"),
        ("model: small", "? [a, b]\n: 3\nmodel: small", "not YAML: a key must be a plain word"),
        ("inputs: [conv1]", "inputs: &a [conv1]\n  <<: *a", "not YAML"),
        ("inputs: [conv1]", "inputs: conv1", "inputs must be a list, not 'conv1'"),
        ("shape: [5, 5, 4]", "shape: [5, 4, 4]", "gives 5x5x4 for 5x5x1, but its type says 5x4x4"),
        ("shape: [5, 5, 4]", "shape: [5, 5, 4]\n  forms: [other = stats]", "a form is chosen for 'other'"),
    ],
)
def test_what_does_not_fit_is_named(old: str, new: str, message: str) -> None:
    text = to_yaml(trc.lower(SMALL, to="arch", fuse=False))
    assert old in text
    with pytest.raises(CompileError, match=message):
        from_yaml(text.replace(old, new, 1))


def test_garbage() -> None:
    bombs = "version: &a [x, x]\nmodel: &b [*a, *a]\ninput: [*b, *b]"
    deep = "version: " + "[" * 100_000
    for text in ("", "[1, 2]", "{a: [", "&a [*a]", "version: !!python/object:os.system {}", bombs, deep, "2001-99-99"):
        with pytest.raises(CompileError):
            from_yaml(text)


# --- every layer ----------------------------------------------------------------------------------------------------

LAYERS = [op for op in Arch.operations if issubclass(op, LayerOp)]


def value_of(field: Field) -> st.SearchStrategy[Any]:
    match field:
        case UnitField():
            return st.just(True)
        case BoolField():
            return st.booleans()
        case IntField():
            return st.integers(field.least, 9) | st.integers(field.least, 2**31 - 1)
        case FloatField():
            bounds = (max(field.least, -1e300), min(field.most, 1e300))
            open_ = {"exclude_min": field.bounds[0] == "(", "exclude_max": field.bounds[1] == ")"}
            return st.floats(*bounds, **open_)
        case EnumField():
            assert field.kind is not None
            return st.sampled_from(list(field.kind.enum_type))
        case _:
            raise AssertionError(field)


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_$-]{0,6}(\.[A-Za-z0-9_$-]{1,4})?", fullmatch=True) | st.sampled_from(
    ["yes", "no", "on", "null", "true", "input", "y", "NaN", "nan", "e1", "_1_000", "model.1e3"]
)


@st.composite
def modules(draw: st.DrawFn) -> ModuleOp:
    """Any graph of any layers with any parameters; shapes are unknown, but for the input's at times."""
    sizes = draw(st.sampled_from([UNKNOWN, (None, 8, 6, 3), (None, 1, None, 5)]))
    block = Block(arg_types=[tensor_of(sizes)])
    block.args[0].name_hint = "input"
    values: list[SSAValue] = [block.args[0]]
    for name in draw(st.lists(NAMES, min_size=1, max_size=8, unique=True)):
        kind = draw(st.sampled_from(LAYERS))
        given_ = {f.name: draw(value_of(f)) for f in kind.FIELDS if not f.optional or draw(st.booleans())}
        properties = kind.fields_from(given_)
        properties["layer"] = StringAttr(name)
        if kind.MERGED and draw(st.booleans()):
            properties["parts"] = ArrayAttr(map(StringAttr, draw(st.lists(NAMES, min_size=1, unique=True))))
        if draw(st.booleans()):
            properties["first"] = UnitAttr()
        op = kind.create(
            operands=[draw(st.sampled_from(values)) for _ in kind.get_irdl_definition().operands],
            properties=properties,
            result_types=[tensor_of(UNKNOWN)],
        )
        if draw(st.booleans()):
            words = st.from_regex(r"[a-z_]{1,6}(\+[a-z_]{1,6})?", fullmatch=True)
            op.properties["forms"] = ArrayAttr(StringAttr(f"{leaf} = {draw(words)}") for leaf in op.leaf_names)
        block.add_op(op)
        values.append(op.result)
    block.add_op(OutputOp(values[-1]))
    return ModuleOp([ModelOp(draw(NAMES), Region(block))])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(modules().filter(lambda module: not problems(module)))
def test_every_layer_round_trips(module: ModuleOp) -> None:
    text = to_yaml(module)
    again = from_yaml(text)
    assert str(again) == str(module)
    assert again.is_structurally_equivalent(module)
    assert to_yaml(again) == text
    assert to_yaml(parse_module(str(module))) == text


def leaf() -> st.SearchStrategy[trc.Layer]:
    """Layers that keep an 8 x 8 map of 8 channels."""
    return st.one_of(
        st.sampled_from([trc.relu(), trc.relu6(), trc.tanh_act(), trc.bn(eps=1e-3), trc.conv(8, 3, p=1, bias=True)]),
        st.sampled_from([trc.conv_dw(3, p=1), trc.group_conv(8, 2, 1), trc.cbr(8, 3, p=1, act="relu6", momentum=0.3)]),
        st.sampled_from([trc.block(8, trc.RESNET_3_3), trc.block(4, 8, trc.RESNET_1_3_1), trc.mbconv(6, 8, 1)]),
        st.floats(0, 0.9).map(trc.dropout),
        st.floats(0, 5).map(trc.leaky_relu),
        st.just(trc.maxpool(3, 1, 1)),
    )


def body() -> st.SearchStrategy[trc.Layer]:
    return st.recursive(
        leaf(),
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map(trc.seq),
            st.tuples(inner | st.just(trc.identity()), inner).map(lambda pair: trc.add2(*pair)),
            st.tuples(inner, st.integers(1, 2)).map(lambda pair: trc.repeat(*pair)),
        ),
        max_leaves=8,
    )


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(body(), st.booleans(), st.sampled_from(["arch", "kernels"]))
def test_networks_round_trip(middle: trc.Layer, fuse: bool, to: str) -> None:
    module = trc.lower(trc.seq(middle, trc.gap_fc(5)), to=to, fuse=fuse, input=(8, 8, 8))
    models = [op for op in module.ops if isinstance(op, ModelOp)]
    assert str(from_yaml(to_yaml(module))) == str(ModuleOp([models[0].clone()]))


def test_what_yaml_has_no_place_for() -> None:
    text = 'arch.model @m(%x: tensor<?x4x4x1xf32>) { %0 = arch.relu %x layer "a" ATTR arch.output %0 }'
    assert to_yaml(parse_module(text.replace("ATTR", "")))
    for change, message in (
        ({"ATTR": "attributes {hot = 3 : i32}"}, "the attribute 'hot' of arch.relu has no YAML form"),
        ({"ATTR": "", 'layer "a"': ""}, "a layer without a name has no YAML form"),
        ({"ATTR": '%1 = arch.relu %0 layer "a"'}, "layer 'a': the name is given twice"),
        ({"ATTR": "", "{ %0": "attributes {hot} { %0"}, "the attribute 'hot' of arch.model"),
    ):
        changed = text
        for old, new in change.items():
            changed = changed.replace(old, new)
        with pytest.raises(CompileError, match=message):
            to_yaml(parse_module(changed))
    with pytest.raises(CompileError, match=r"more than one arch\.model"):
        to_yaml(parse_module(text.replace("ATTR", "") + text.replace("ATTR", "").replace("@m", "@n")))
    with pytest.raises(CompileError, match=r"has no arch\.model"):
        to_yaml(ModuleOp([]))
