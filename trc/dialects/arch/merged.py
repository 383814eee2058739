"""Layers that stand for several: they are what a macro says, or what the merging passes find.

`parts` holds the names of the layers they stand for, in the order in which those run; parameters keep these names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from xdsl.dialects.builtin import I64, ArrayAttr, BoolAttr, Float64Type, FloatAttr, IntegerAttr
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, opt_prop_def, prop_def

from trc.dialects.arch.base import (
    BoolField,
    EnumField,
    Field,
    IntField,
    Number,
    Shape,
    ShapeProblem,
    UnaryOp,
    int_of,
    string,
    window,
)
from trc.dialects.arch.conv import conv_shape
from trc.dialects.arch.enums import Act, ActAttr, Shortcut, ShortcutAttr
from trc.dialects.arch.norm import NORM_FIELDS
from trc.dialects.arch.pool import padding_problem, pool_shape


class MergedOp(UnaryOp):
    """A layer that stands for several."""

    MERGED: ClassVar[bool] = True

    def __init__(
        self, x: SSAValue, values: dict[str, Number], layer: str | None = None, parts: Sequence[str] | None = None
    ) -> None:
        super().__init__((x,), values, layer)
        if parts is not None:
            self.properties["parts"] = ArrayAttr(map(string, parts))


CBR_FIELDS: tuple[Field, ...] = (
    IntField("out_channels"),
    IntField("kernel"),
    IntField("stride", 1),
    IntField("padding", 0, least=0),
    IntField("groups", 1),
    BoolField("bias", False),
    EnumField("act", Act.RELU, kind=ActAttr),
    *NORM_FIELDS,
)


class ConvNormActOp(MergedOp):
    """Convolution, batch norm, activation."""

    out_channels = prop_def(IntegerAttr[I64])
    kernel = prop_def(IntegerAttr[I64])
    stride = prop_def(IntegerAttr[I64])
    padding = prop_def(IntegerAttr[I64])
    groups = prop_def(IntegerAttr[I64])
    bias = prop_def(BoolAttr)
    act = prop_def(ActAttr)
    momentum = prop_def(FloatAttr[Float64Type])
    eps = prop_def(FloatAttr[Float64Type])

    def infer_shape(self, inputs: Sequence[Shape]) -> Shape:
        """The shape after the convolution."""
        return conv_shape(
            inputs[0],
            int_of(self.out_channels),
            int_of(self.kernel),
            int_of(self.stride),
            int_of(self.padding),
            int_of(self.groups),
        )


@irdl_op_definition
class CbrOp(ConvNormActOp):
    """Convolution, batch norm, relu or relu6.

    `%y = arch.cbr %x {out_channels = 64, kernel = 3, act = relu6} layer "conv1" parts ["conv1", "bn1", "relu61"]`
    """

    name = "arch.cbr"
    FIELDS: ClassVar[tuple[Field, ...]] = CBR_FIELDS

    def __init__(
        self,
        x: SSAValue,
        out_channels: int,
        kernel: int,
        stride: int = 1,
        padding: int = 0,
        groups: int = 1,
        bias: bool = False,
        act: str = "relu",
        momentum: float = 0.1,
        eps: float = 1e-5,
        layer: str | None = None,
        parts: Sequence[str] | None = None,
    ) -> None:
        values: dict[str, Number] = {
            "out_channels": out_channels,
            "kernel": kernel,
            "stride": stride,
            "padding": padding,
            "groups": groups,
            "bias": bias,
            "act": Act(act),
            "momentum": momentum,
            "eps": eps,
        }
        super().__init__(x, values, layer, parts)


@irdl_op_definition
class CbrpOp(ConvNormActOp):
    """Convolution, batch norm, relu or relu6, maximum pool.

    As `arch.cbr`, with `pool_kernel`, `pool_stride` and `pool_padding`.
    """

    name = "arch.cbrp"
    FIELDS: ClassVar[tuple[Field, ...]] = (
        *CBR_FIELDS,
        IntField("pool_kernel"),
        IntField("pool_stride"),
        IntField("pool_padding", 0, least=0),
    )
    pool_kernel = prop_def(IntegerAttr[I64])
    pool_stride = prop_def(IntegerAttr[I64])
    pool_padding = prop_def(IntegerAttr[I64])

    def __init__(
        self,
        x: SSAValue,
        out_channels: int,
        kernel: int,
        stride: int = 1,
        padding: int = 0,
        groups: int = 1,
        bias: bool = False,
        act: str = "relu",
        momentum: float = 0.1,
        eps: float = 1e-5,
        *,
        pool_kernel: int,
        pool_stride: int,
        pool_padding: int = 0,
        layer: str | None = None,
        parts: Sequence[str] | None = None,
    ) -> None:
        values: dict[str, Number] = {
            "out_channels": out_channels,
            "kernel": kernel,
            "stride": stride,
            "padding": padding,
            "groups": groups,
            "bias": bias,
            "act": Act(act),
            "momentum": momentum,
            "eps": eps,
            "pool_kernel": pool_kernel,
            "pool_stride": pool_stride,
            "pool_padding": pool_padding,
        }
        super().__init__(x, values, layer, parts)

    def problems(self) -> Iterator[str]:
        """Also: windows of padding."""
        yield from super().problems()
        if (found := padding_problem(int_of(self.pool_kernel), int_of(self.pool_padding), "pool_")) is not None:
            yield found

    def infer_shape(self, inputs: Sequence[Shape]) -> Shape:
        """The shape after the pool."""
        return pool_shape(
            super().infer_shape(inputs), int_of(self.pool_kernel), int_of(self.pool_stride), int_of(self.pool_padding)
        )


@irdl_op_definition
class GapFcOp(MergedOp):
    """Global mean and fully connected layer: `%y = arch.gap_fc %x {out_features = 10} parts ["gap1", "fc1"]`."""

    name = "arch.gap_fc"
    FIELDS: ClassVar[tuple[Field, ...]] = (IntField("out_features"), BoolField("bias", True))
    out_features = prop_def(IntegerAttr[I64])
    bias = prop_def(BoolAttr)

    def __init__(
        self,
        x: SSAValue,
        out_features: int,
        bias: bool = True,
        layer: str | None = None,
        parts: Sequence[str] | None = None,
    ) -> None:
        super().__init__(x, {"out_features": out_features, "bias": bias}, layer, parts)

    def infer_shape(self, inputs: Sequence[Shape]) -> Shape:
        """One place, `out_features` channels."""
        return inputs[0][0], 1, 1, int_of(self.out_features)


class ResidualOp(MergedOp):
    """A block whose 3x3 convolution has the stride and padding 1; all its batch norms share their parameters."""

    out_channels = prop_def(IntegerAttr[I64])
    stride = prop_def(IntegerAttr[I64])
    shortcut = prop_def(ShortcutAttr)
    act = prop_def(ActAttr)
    momentum = prop_def(FloatAttr[Float64Type])
    eps = prop_def(FloatAttr[Float64Type])

    SHORTCUTS: ClassVar[tuple[Shortcut, ...]] = (Shortcut.IDENTITY, Shortcut.PROJECTION)

    def problems(self) -> Iterator[str]:
        """Also: a shortcut that this block does not have, or that cannot be."""
        yield from super().problems()
        shortcut = self.shortcut.data
        if shortcut not in self.SHORTCUTS:
            yield f"shortcut is {shortcut} and should be {' or '.join(self.SHORTCUTS)}"
        if shortcut is Shortcut.IDENTITY and int_of(self.stride) != 1:
            yield f"stride is {int_of(self.stride)}, but an identity shortcut needs 1"

    def infer_shape(self, inputs: Sequence[Shape]) -> Shape:
        """The shape after the 3x3 convolution, with the block's output channels."""
        n, h, w, c = inputs[0]
        out, stride = int_of(self.out_channels), int_of(self.stride)
        if self.shortcut.data is Shortcut.IDENTITY and c is not None and c != out:
            raise ShapeProblem(f"an identity shortcut of {c} channels cannot be added to a stem of {out}")
        return n, window(h, 3, stride, 1, "height"), window(w, 3, stride, 1, "width"), out


@irdl_op_definition
class BottleneckOp(ResidualOp):
    """ResNet's bottleneck: 1x1 to `mid_channels`, 3x3, 1x1 to `out_channels`, each with batch norm; sum; activation.

    `%y = arch.bottleneck %x {mid_channels = 64, out_channels = 256, shortcut = projection} parts [...]`
    """

    name = "arch.bottleneck"
    FIELDS: ClassVar[tuple[Field, ...]] = (
        IntField("mid_channels"),
        IntField("out_channels"),
        IntField("stride", 1),
        EnumField("shortcut", Shortcut.IDENTITY, kind=ShortcutAttr),
        EnumField("act", Act.RELU, kind=ActAttr),
        *NORM_FIELDS,
    )
    mid_channels = prop_def(IntegerAttr[I64])

    def __init__(
        self,
        x: SSAValue,
        mid_channels: int,
        out_channels: int,
        stride: int = 1,
        shortcut: str = "identity",
        act: str = "relu",
        momentum: float = 0.1,
        eps: float = 1e-5,
        layer: str | None = None,
        parts: Sequence[str] | None = None,
    ) -> None:
        values: dict[str, Number] = {
            "mid_channels": mid_channels,
            "out_channels": out_channels,
            "stride": stride,
            "shortcut": Shortcut(shortcut),
            "act": Act(act),
            "momentum": momentum,
            "eps": eps,
        }
        super().__init__(x, values, layer, parts)


@irdl_op_definition
class BasicBlockOp(ResidualOp):
    """ResNet's basic block: 3x3, 3x3, each with batch norm; sum; activation.

    `%y = arch.basic_block %x {out_channels = 64} parts [...]`
    """

    name = "arch.basic_block"
    FIELDS: ClassVar[tuple[Field, ...]] = (
        IntField("out_channels"),
        IntField("stride", 1),
        EnumField("shortcut", Shortcut.IDENTITY, kind=ShortcutAttr),
        EnumField("act", Act.RELU, kind=ActAttr),
        *NORM_FIELDS,
    )

    def __init__(
        self,
        x: SSAValue,
        out_channels: int,
        stride: int = 1,
        shortcut: str = "identity",
        act: str = "relu",
        momentum: float = 0.1,
        eps: float = 1e-5,
        layer: str | None = None,
        parts: Sequence[str] | None = None,
    ) -> None:
        values: dict[str, Number] = {
            "out_channels": out_channels,
            "stride": stride,
            "shortcut": Shortcut(shortcut),
            "act": Act(act),
            "momentum": momentum,
            "eps": eps,
        }
        super().__init__(x, values, layer, parts)


@irdl_op_definition
class InvertedResidualOp(ResidualOp):
    """MobileNetV2's block: 1x1 to `expand_channels`, depthwise 3x3, 1x1 to `out_channels`, each with batch norm.

    The activation follows the first two only. Without `expand_channels` there is no first convolution. With
    `shortcut = identity` the input is added; else there is no sum.
    `%y = arch.inverted_residual %x {expand_channels = 96, out_channels = 24, stride = 2} parts [...]`
    """

    name = "arch.inverted_residual"
    SHORTCUTS: ClassVar[tuple[Shortcut, ...]] = (Shortcut.IDENTITY, Shortcut.NONE)
    FIELDS: ClassVar[tuple[Field, ...]] = (
        IntField("expand_channels", optional=True),
        IntField("out_channels"),
        IntField("stride", 1),
        EnumField("shortcut", Shortcut.NONE, kind=ShortcutAttr),
        EnumField("act", Act.RELU6, kind=ActAttr),
        *NORM_FIELDS,
    )
    expand_channels = opt_prop_def(IntegerAttr[I64])

    def __init__(
        self,
        x: SSAValue,
        expand_channels: int | None,
        out_channels: int,
        stride: int = 1,
        shortcut: str = "none",
        act: str = "relu6",
        momentum: float = 0.1,
        eps: float = 1e-5,
        layer: str | None = None,
        parts: Sequence[str] | None = None,
    ) -> None:
        values: dict[str, Number] = {
            "expand_channels": expand_channels,
            "out_channels": out_channels,
            "stride": stride,
            "shortcut": Shortcut(shortcut),
            "act": Act(act),
            "momentum": momentum,
            "eps": eps,
        }
        super().__init__(x, values, layer, parts)
