"""Whatever the spelling, the IR is the same; whatever is merged, it stands for the same layers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from tests.unit.passes.arch.helpers import names_of, network, transform
from trc.diagnostics import CompileError
from trc.dialects.arch import IdentityOp, LayerOp

STYLES = [
    "RESNET_1_3_1, mid = 4",
    "RESNET_1_3_1_DS, mid = 4",
    "RESNET_3_3",
    "RESNET_3_3_DS",
    "MB_E1_K3",
    "MB_E1_K3_DS",
    "MB_E6_K3",
    "MB_E6_K3_DS",
]


@pytest.mark.parametrize("named", ["", ' layer "b"'])
@pytest.mark.parametrize("out", [8, 24])
@pytest.mark.parametrize("style", STYLES)
def test_block_and_its_expansion_print_the_same(style: str, out: int, named: str) -> None:
    text = network(
        [
            "%0 = arch.cbr %x {out_channels = 8, kernel = 1, act = relu6}",
            f"%1 = arch.block %0 {{style = {style}, out = {out}}}{named}",
            f"%2 = arch.block %1 {{style = {style}, out = {out}}}",
            "%3 = arch.gap_fc %2 {out_features = 10}",
        ]
    )
    by_hand = str(transform(text, "arch-expand-tree{fuse=false}"))
    assert "block" not in by_hand
    assert str(transform(by_hand, "arch-plan{fuse=true}")) == str(transform(text, "arch-plan{fuse=true}"))
    assert str(transform(by_hand, "arch-plan{fuse=false}")) == str(transform(text, "arch-plan{fuse=false}"))


@pytest.mark.parametrize("macro", ["cbr", "cbrp"])
def test_macros_and_their_expansions_print_the_same(macro: str) -> None:
    pool = ", padding = 1, pool_kernel = 2, pool_stride = 2" if macro == "cbrp" else ""
    text = network([f"%0 = arch.{macro} %x {{out_channels = 10, kernel = 16{pool}}}"])
    by_hand = str(transform(text, "arch-expand-tree{fuse=false}"))
    for fuse in ("true", "false"):
        pipeline = f"arch-plan{{fuse={fuse}}}"
        assert str(transform(by_hand, pipeline)) == str(transform(text, pipeline))


def layer_table(module: ModuleOp) -> dict[str, object]:
    """Each layer by name: kind, parameters, type, and the names of those that it reads; identities do not count."""

    def source(value: SSAValue) -> str:
        owner = value.owner
        if isinstance(owner, IdentityOp):
            return source(owner.operands[0])
        return owner.layer_name if isinstance(owner, LayerOp) else "input"

    table: dict[str, object] = {}
    for op in module.walk():
        if isinstance(op, LayerOp) and not isinstance(op, IdentityOp):
            given = {k: v for k, v in op.properties.items() if k not in ("layer", "first")}
            reads = [source(value) for value in op.operands]
            table[op.layer_name] = (op.name, given, op.result.type, sorted(reads))
    return table


ACTS = st.sampled_from(["relu", "relu6", "relu", "relu6", "silu"])


@st.composite
def convolution(draw: st.DrawFn, x: str, y: str) -> list[str]:
    """A convolution, mostly with norm and activation, whose parameters are those of blocks or close to them."""
    kernel = draw(st.sampled_from([1, 1, 3, 3, 5]))
    fields = [f"kernel = {kernel}"]
    if draw(st.integers(0, 9)) > 0:
        fields.append(f"padding = {kernel // 2}")
    if draw(st.integers(0, 5)) == 0:
        fields.append("stride = 2")
    if draw(st.integers(0, 2)) == 0 and kernel == 3:
        fields.append("depthwise")
    else:
        fields.append("out_channels = 8")
        if draw(st.integers(0, 7)) == 0:
            fields.append("groups = 8")
    if draw(st.integers(0, 9)) == 0:
        fields.append("bias = true")
    eps = draw(st.sampled_from(["", "", "", " {eps = 0.01}"]))
    lines = [f"{y}c = arch.conv {x} {{{', '.join(fields)}}}", f"{y}n = arch.bn {y}c{eps}"]
    if draw(st.integers(0, 2)) > 0:
        return [*lines, f"{y} = arch.{draw(ACTS)} {y}n"]
    return [*lines, f"{y} = arch.identity {y}n"]


@st.composite
def networks(draw: st.DrawFn) -> str:
    """Convolutions in a row, sums over some of them, macros and blocks between."""
    lines: list[str] = []
    values = ["%x"]
    for n in range(draw(st.integers(1, 10))):
        x, y = values[-1], f"%v{n}"
        what = draw(st.integers(0, 9))
        if what < 6:
            lines += draw(convolution(x, y))
        elif what == 6:
            lines.append(f"{y} = arch.block {x} {{style = {draw(st.sampled_from(STYLES))}, out = 8}}")
        elif what == 7:
            lines.append(f"{y} = arch.cbr {x} {{out_channels = 8, kernel = 3, padding = 1, act = relu6}}")
        else:
            lines.append(f"{y}a = arch.add {draw(st.sampled_from(values))}, {x}")
            lines.append(f"{y} = arch.{draw(ACTS)} {y}a")
        values.append(y)
    lines += [f"%g = arch.gap {values[-1]}", "%f = arch.fc %g {out_features = 10}"]
    return network(lines, "12x12x8")


@settings(max_examples=150, deadline=None, derandomize=True)
@given(networks())
def test_merged_layers_stand_for_the_layers_that_were_there(text: str) -> None:
    try:
        plain = transform(text, "arch-plan{fuse=false}")
    except CompileError:
        # The same mistakes are found with merging.
        with pytest.raises(CompileError, match=r"net\.mlir:\d+:\d+: error: layer "):
            transform(text, "arch-plan{fuse=true}")
        return
    merged = str(transform(text, "arch-plan{fuse=true}"))
    spelled = transform(merged, "arch-expand-tree{fuse=false},arch-rename-bn,arch-deduce-shapes,arch-expand-tree")
    assert layer_table(spelled) == layer_table(plain)
    assert str(transform(merged, "arch-plan{fuse=true}")) == merged


def test_places_and_names_survive_merging() -> None:
    lines = [
        "%0 = arch.conv %x {out_channels = 10, kernel = 16}",
        "%1 = arch.bn %0",
        "%2 = arch.relu %1",
        "%3 = arch.block %2 {style = RESNET_3_3, out = 10}",
        "%4 = arch.gap_fc %3 {out_features = 10}",
    ]
    module = transform(network(lines), "arch-plan{fuse=true}")
    assert names_of(module) == ["cbr", "basic_block", "gap_fc", "softmax_ce"]
    rows = [str(op.location).split(":")[1] for op in module.walk() if isinstance(op, LayerOp)]
    assert rows == ["2", "5", "6", "7"]
