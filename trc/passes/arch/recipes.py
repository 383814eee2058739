"""What merged layers and blocks stand for: the layers, in the order in which they are numbered and run.

A recipe builds through a function that it is given, so the same recipe makes layers when a block is expanded and only
names when it is kept whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from trc.dialects.arch import (
    Act,
    AddOp,
    BasicBlockOp,
    BnOp,
    BottleneckOp,
    CbrOp,
    CbrpOp,
    ConvOp,
    FcOp,
    GapFcOp,
    GapOp,
    IdentityOp,
    InvertedResidualOp,
    LayerOp,
    MaxPoolOp,
    MergedOp,
    Relu6Op,
    ReluOp,
    Shortcut,
    bool_of,
    float_of,
    int_of,
)
from trc.dialects.arch.base import Number

V = TypeVar("V")


class Emit(Protocol[V]):
    """Makes one layer and returns its value."""

    def __call__(self, kind: type[LayerOp], inputs: tuple[V, ...], values: Mapping[str, Number]) -> V:
        """Make a layer of a kind on inputs with parameters."""
        ...


def activation(act: Act) -> type[LayerOp]:
    """The layer of an activation."""
    return Relu6Op if act is Act.RELU6 else ReluOp


class Recipe:
    """Shorthands for the layers that all recipes are made of; `norm` holds momentum and eps."""

    def __init__(self, norm: Mapping[str, Number], act: Act) -> None:
        self.norm = norm
        self.act = act

    def conv_bn(
        self, emit: Emit[V], x: V, channels: int | None, kernel: int = 1, stride: int = 1, depthwise: bool = False
    ) -> V:
        """A convolution that keeps the size at stride 1, and its batch norm."""
        values = {"out_channels": channels, "kernel": kernel, "stride": stride, "padding": kernel // 2}
        x = emit(ConvOp, (x,), {**values, "depthwise": depthwise})
        return emit(BnOp, (x,), self.norm)

    def conv_bn_act(
        self, emit: Emit[V], x: V, channels: int | None, kernel: int = 1, stride: int = 1, depthwise: bool = False
    ) -> V:
        """The same and the activation."""
        return emit(activation(self.act), (self.conv_bn(emit, x, channels, kernel, stride, depthwise),), {})

    def residual(self, emit: Emit[V], x: V, shortcut: Shortcut, out: int, stride: int, stem: Callable[[V], V]) -> V:
        """The shortcut, then the stem, then their sum; the stem alone where there is no shortcut."""
        if shortcut is Shortcut.NONE:
            return stem(x)
        if shortcut is Shortcut.IDENTITY:
            beside = emit(IdentityOp, (x,), {})
        else:
            beside = self.conv_bn(emit, x, out, stride=stride)
        return emit(AddOp, (beside, stem(x)), {})

    def bottleneck(self, emit: Emit[V], x: V, mid: int, out: int, stride: int, shortcut: Shortcut) -> V:
        """ResNet's 1x1, 3x3 (with the stride), 1x1."""

        def stem(y: V) -> V:
            y = self.conv_bn_act(emit, y, mid)
            y = self.conv_bn_act(emit, y, mid, 3, stride)
            return self.conv_bn(emit, y, out)

        return emit(activation(self.act), (self.residual(emit, x, shortcut, out, stride, stem),), {})

    def basic_block(self, emit: Emit[V], x: V, out: int, stride: int, shortcut: Shortcut) -> V:
        """ResNet's 3x3 (with the stride), 3x3."""

        def stem(y: V) -> V:
            return self.conv_bn(emit, self.conv_bn_act(emit, y, out, 3, stride), out, 3)

        return emit(activation(self.act), (self.residual(emit, x, shortcut, out, stride, stem),), {})

    def inverted_residual(
        self, emit: Emit[V], x: V, expand: int | None, out: int, stride: int, shortcut: Shortcut
    ) -> V:
        """MobileNetV2's 1x1 (unless `expand` is None), depthwise 3x3 with the stride, 1x1 without activation."""

        def stem(y: V) -> V:
            if expand is not None:
                y = self.conv_bn_act(emit, y, expand)
            y = self.conv_bn_act(emit, y, None, 3, stride, depthwise=True)
            return self.conv_bn(emit, y, out)

        return self.residual(emit, x, shortcut, out, stride, stem)


def spell_out(op: MergedOp, emit: Emit[V], x: V) -> V:
    """Make the layers that a merged one stands for."""
    if isinstance(op, GapFcOp):
        x = emit(GapOp, (x,), {})
        return emit(FcOp, (x,), {"out_features": int_of(op.out_features), "bias": bool_of(op.bias)})
    if isinstance(op, CbrOp | CbrpOp):
        values: dict[str, Number] = {
            "out_channels": int_of(op.out_channels),
            "kernel": int_of(op.kernel),
            "stride": int_of(op.stride),
            "padding": int_of(op.padding),
            "groups": int_of(op.groups),
            "bias": bool_of(op.bias),
        }
        x = emit(ConvOp, (x,), values)
        x = emit(BnOp, (x,), {"momentum": float_of(op.momentum), "eps": float_of(op.eps)})
        x = emit(activation(op.act.data), (x,), {})
        if isinstance(op, CbrOp):
            return x
        pool = {"kernel": op.pool_kernel, "stride": op.pool_stride, "padding": op.pool_padding}
        return emit(MaxPoolOp, (x,), {name: int_of(size) for name, size in pool.items()})
    assert isinstance(op, BottleneckOp | BasicBlockOp | InvertedResidualOp)
    recipe = Recipe({"momentum": float_of(op.momentum), "eps": float_of(op.eps)}, op.act.data)
    out, stride, shortcut = int_of(op.out_channels), int_of(op.stride), op.shortcut.data
    if isinstance(op, BottleneckOp):
        return recipe.bottleneck(emit, x, int_of(op.mid_channels), out, stride, shortcut)
    if isinstance(op, BasicBlockOp):
        return recipe.basic_block(emit, x, out, stride, shortcut)
    expand = None if op.expand_channels is None else int_of(op.expand_channels)
    return recipe.inverted_residual(emit, x, expand, out, stride, shortcut)
