"""Convolutional networks for the plan passes: particular ones, and drawn ones with nested residuals."""

from __future__ import annotations

from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from tests.unit.passes.plan.nets import Drawn, Net
from trc.dialects.arch import (
    AddOp,
    AvgPoolOp,
    BasicBlockOp,
    Bn2dOp,
    BottleneckOp,
    CbrOp,
    CbrpOp,
    ChannelPaddingOp,
    ConvOp,
    DropoutOp,
    FcOp,
    FlattenOp,
    GapFcOp,
    GapOp,
    IdentityOp,
    InvertedResidualOp,
    LayerOp,
    MaxPoolOp,
    MergedOp,
    Relu6Op,
    ReluOp,
    SiluOp,
)
from trc.dialects.arch.base import shape_of
from trc.layers.registry import _EXPANSIONS  # pyright: ignore[reportPrivateUsage]


class ConvNet(Net):
    """`Net` that gives merged layers the names of their parts, and has shorthands."""

    def __init__(self, size: tuple[int, int, int] = (8, 8, 8)) -> None:
        super().__init__(size)
        self._parts = 0

    def merged(self, kind: type[MergedOp], x: SSAValue, **options: object) -> SSAValue:
        count = len(_EXPANSIONS[kind.name](kind(x, **options)))  # type: ignore[arg-type]
        self._parts += 1
        names = [f"m{self._parts}_{n}" for n in range(count)]
        return self.add(kind, x, layer=names[0], parts=names, **options)

    def conv(self, x: SSAValue, channels: int, kernel: int = 3, **options: object) -> SSAValue:
        return self.add(ConvOp, x, out_channels=channels, kernel=kernel, padding=kernel // 2, **options)

    def conv_bn(self, x: SSAValue, channels: int, kernel: int = 3, **options: object) -> SSAValue:
        return self.add(Bn2dOp, self.conv(x, channels, kernel, **options))

    def conv_bn_relu(self, x: SSAValue, channels: int, kernel: int = 3, **options: object) -> SSAValue:
        return self.add(ReluOp, self.conv_bn(x, channels, kernel, **options))

    def done(self, value: SSAValue) -> ModuleOp:
        return self.finish(self.add(FcOp, self.add(GapOp, value), out_features=5), 5)


@st.composite
def conv_networks(draw: st.DrawFn, channels: int = 8) -> Drawn:
    """Networks of every layer that works on maps, with branches in branches."""
    net = ConvNet((draw(st.integers(4, 9)), draw(st.integers(4, 9)), channels))
    value = net.input if draw(st.booleans()) else net.conv(net.input, draw(st.sampled_from([8, 12, 16])))
    for _ in range(draw(st.integers(1, 5))):
        value = _piece(draw, net, value, 0)
    if draw(st.booleans()):
        value = net.merged(GapFcOp, value, out_features=5)
    elif shape_of(value)[3] is not None and draw(st.booleans()):
        value = net.add(FcOp, net.add(FlattenOp, value), out_features=5)
    else:
        value = net.add(FcOp, net.add(GapOp, value), out_features=5)
    return Drawn(net.finish(value, 5))


def _piece(draw: st.DrawFn, net: ConvNet, x: SSAValue, depth: int) -> SSAValue:
    width = shape_of(x)[3]
    assert width is not None
    kinds = ["conv", "cbr", "conv_bn", "act", "block", "pool", "odd", "residual", "residual"]
    kind = draw(st.sampled_from(kinds if depth < 2 else kinds[:5]))
    channels = draw(st.sampled_from([width, 8, 16]))
    if kind == "conv":
        return net.conv(x, channels, draw(st.sampled_from([1, 3])), bias=draw(st.booleans()))
    if kind == "cbr":
        act = draw(st.sampled_from(["relu", "relu6"]))
        return net.merged(CbrOp, x, out_channels=channels, kernel=3, padding=1, act=act)
    if kind == "conv_bn":
        return net.conv_bn(x, width, groups=width) if draw(st.booleans()) else net.conv_bn(x, channels)
    if kind == "act":
        return net.add(draw(st.sampled_from([ReluOp, Relu6Op, SiluOp])), x)
    if kind == "block":
        return _block(draw, net, x, width)
    if kind == "pool":
        pool = draw(st.sampled_from([MaxPoolOp, AvgPoolOp]))
        return net.add(pool, x, kernel=3, stride=1, padding=1)
    if kind == "odd":
        odd = draw(st.sampled_from(["bn", "dropout", "pad", "cbrp"]))
        if odd == "cbrp":
            pool = {"pool_kernel": 3, "pool_stride": 1, "pool_padding": 1}
            return net.merged(CbrpOp, x, out_channels=channels, kernel=1, **pool)
        if odd == "dropout":
            return net.add(DropoutOp, x, p=0.25)
        return net.add(Bn2dOp if odd == "bn" else ChannelPaddingOp, x)
    stem = x
    for _ in range(draw(st.integers(1, 3))):
        stem = _piece(draw, net, stem, depth + 1)
    out = shape_of(stem)[3]
    assert out is not None
    if out == width and draw(st.booleans()):
        shortcut = net.add(IdentityOp, x) if draw(st.booleans()) else x
    else:
        shortcut = net.conv_bn(x, out, 1)
    value = net.add(AddOp, shortcut, stem)
    return net.add(ReluOp, value) if draw(st.booleans()) else value


def _block(draw: st.DrawFn, net: ConvNet, x: SSAValue, width: int) -> SSAValue:
    same = draw(st.booleans())
    out, shortcut = (width, "identity") if same else (draw(st.sampled_from([8, 16])), "projection")
    kind: type[LayerOp] = draw(st.sampled_from([BottleneckOp, BasicBlockOp, InvertedResidualOp]))
    if kind is BottleneckOp:
        return net.merged(BottleneckOp, x, mid_channels=8, out_channels=out, shortcut=shortcut)
    if kind is BasicBlockOp:
        return net.merged(BasicBlockOp, x, out_channels=out, shortcut=shortcut)
    expand = draw(st.sampled_from([None, 16]))
    return net.merged(
        InvertedResidualOp, x, expand_channels=expand, out_channels=out, shortcut="identity" if same else "none"
    )
