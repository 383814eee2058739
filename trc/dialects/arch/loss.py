"""The loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdsl.dialects.builtin import I64, Float64Type, FloatAttr, IntegerAttr
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, prop_def

from trc.dialects.arch.base import Field, FloatField, IntField, SameShapeOp, Shape, ShapeProblem, int_of, shape_text
from trc.dialects.arch.dense import flat_size


@irdl_op_definition
class SoftmaxCeOp(SameShapeOp):
    """Cross entropy of the softmax against the labels, over the map as one vector.

    `%loss = arch.softmax_ce %logits {num_classes = 10, label_smoothing = 0.1} layer "softmax_ce"`. Its result stands
    for the probabilities.
    """

    name = "arch.softmax_ce"
    FIELDS: ClassVar[tuple[Field, ...]] = (
        IntField("num_classes", least=2),
        FloatField("label_smoothing", 0.0, least=0.0, most=1.0, bounds="[)"),
    )
    num_classes = prop_def(IntegerAttr[I64])
    label_smoothing = prop_def(FloatAttr[Float64Type])

    def __init__(
        self, logits: SSAValue, num_classes: int, label_smoothing: float = 0.0, layer: str | None = None
    ) -> None:
        super().__init__((logits,), {"num_classes": num_classes, "label_smoothing": label_smoothing}, layer)

    def infer_shape(self, inputs: Sequence[Shape]) -> Shape:
        """The input's shape, which must hold one number a class."""
        size, classes = flat_size(inputs[0]), int_of(self.num_classes)
        if size is not None and size != classes:
            shown = str(size) if inputs[0][1:3] == (1, 1) else f"{shape_text(inputs[0])} = {size}"
            raise ShapeProblem(f"the network gives {shown} numbers a sample, but there are {classes} classes")
        return inputs[0]
