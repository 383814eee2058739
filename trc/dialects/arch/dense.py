"""Fully connected layers and the layers that move or keep numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import I64, BoolAttr, Float64Type, FloatAttr, IntegerAttr
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def

from trc.dialects.arch.base import (
    BoolField,
    Field,
    FloatField,
    IntField,
    LayerOp,
    SameShapeOp,
    Shape,
    ShapeProblem,
    TensorType,
    UnaryOp,
    agree,
    int_of,
    shape_text,
)


def flat_size(x: Shape) -> int | None:
    """Height times width times channels, if all are known."""
    _, h, w, c = x
    return None if h is None or w is None or c is None else h * w * c


@irdl_op_definition
class FcOp(UnaryOp):
    """A fully connected layer over the input's map in HWC order: `%y = arch.fc %x {out_features = 10} layer "fc1"`."""

    name = "arch.fc"
    FIELDS: ClassVar[tuple[Field, ...]] = (IntField("out_features"), BoolField("bias", True))
    out_features = prop_def(IntegerAttr[I64])
    bias = prop_def(BoolAttr)

    def __init__(self, x: SSAValue, out_features: int, bias: bool = True, layer: str | None = None) -> None:
        super().__init__((x,), {"out_features": out_features, "bias": bias}, layer)

    def infer_shape(self, inputs: Sequence[Shape]) -> Shape:
        """One place, `out_features` channels."""
        return inputs[0][0], 1, 1, int_of(self.out_features)


@irdl_op_definition
class FlattenOp(UnaryOp):
    """The map as one vector in HWC order: `%y = arch.flatten %x layer "flatten1" : tensor<?x1x1x784xf32>`."""

    name = "arch.flatten"

    def __init__(self, x: SSAValue, layer: str | None = None) -> None:
        super().__init__((x,), {}, layer)

    def infer_shape(self, inputs: Sequence[Shape]) -> Shape:
        """One place, all numbers as channels."""
        return inputs[0][0], 1, 1, flat_size(inputs[0])


@irdl_op_definition
class ChannelPaddingOp(UnaryOp):
    """Zeros after the last channel, up to a multiple of 8: `%y = arch.channel_padding %x`."""

    name = "arch.channel_padding"

    def __init__(self, x: SSAValue, layer: str | None = None) -> None:
        super().__init__((x,), {}, layer)

    def infer_shape(self, inputs: Sequence[Shape]) -> Shape:
        """The channels rounded up."""
        n, h, w, c = inputs[0]
        return n, h, w, None if c is None else -(-c // 8) * 8


@irdl_op_definition
class DropoutOp(SameShapeOp):
    """Zeroes each number with probability p and divides the others by 1 - p: `%y = arch.dropout %x {p = 0.5}`."""

    name = "arch.dropout"
    POSITIONWISE: ClassVar[bool] = True
    FIELDS: ClassVar[tuple[Field, ...]] = (FloatField("p", 0.5, least=0.0, most=1.0, bounds="[)"),)
    p = prop_def(FloatAttr[Float64Type])

    def __init__(self, x: SSAValue, p: float = 0.5, layer: str | None = None) -> None:
        super().__init__((x,), {"p": p}, layer)


@irdl_op_definition
class IdentityOp(SameShapeOp):
    """The input itself, for an empty shortcut: `%y = arch.identity %x`."""

    name = "arch.identity"
    POSITIONWISE: ClassVar[bool] = True

    def __init__(self, x: SSAValue, layer: str | None = None) -> None:
        super().__init__((x,), {}, layer)


@irdl_op_definition
class AddOp(LayerOp):
    """The sum of a shortcut and a stem: `%y = arch.add %shortcut, %stem layer "add1"`."""

    name = "arch.add"
    shortcut = operand_def(TensorType)
    stem = operand_def(TensorType)

    def __init__(self, shortcut: SSAValue, stem: SSAValue, layer: str | None = None) -> None:
        super().__init__((shortcut, stem), {}, layer)

    def infer_shape(self, inputs: Sequence[Shape]) -> Shape:
        """The common shape of both; what one leaves unknown the other may say."""
        shortcut, stem = inputs
        if not agree(shortcut, stem):
            raise ShapeProblem(f"the shortcut is {shape_text(shortcut)}, the stem {shape_text(stem)}")
        n, h, w, c = (b if a is None else a for a, b in zip(shortcut, stem, strict=True))
        return n, h, w, c
