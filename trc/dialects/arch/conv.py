"""Convolutions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from xdsl.dialects.builtin import I64, BoolAttr, IntegerAttr, UnitAttr
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, opt_prop_def, prop_def

from trc.dialects.arch.base import (
    BoolField,
    Field,
    IntField,
    Shape,
    ShapeProblem,
    UnaryOp,
    UnitField,
    int_of,
    window,
)


def conv_shape(x: Shape, out_channels: int, kernel: int, stride: int, padding: int, groups: int) -> Shape:
    """The shape after a square convolution (spec section 2); ShapeProblem where kernel or groups do not fit."""
    n, h, w, c = x
    if c is not None and c % groups:
        raise ShapeProblem(f"{groups} groups do not divide {c} input channels")
    if out_channels % groups:
        raise ShapeProblem(f"{groups} groups do not divide {out_channels} output channels")
    return n, window(h, kernel, stride, padding, "height"), window(w, kernel, stride, padding, "width"), out_channels


@irdl_op_definition
class ConvOp(UnaryOp):
    """A square convolution: `%y = arch.conv %x {out_channels = 64, kernel = 3, padding = 1} layer "conv1"`.

    `depthwise` gives each input channel a filter of its own; then `out_channels` and `groups` follow from the input and
    stand in the text after `arch-deduce-shapes`, which also marks grouped convolutions that are depthwise.
    """

    name = "arch.conv"
    FIELDS: ClassVar[tuple[Field, ...]] = (
        IntField("out_channels", optional=True),
        IntField("kernel"),
        IntField("stride", 1),
        IntField("padding", 0, least=0),
        IntField("groups", 1),
        BoolField("bias", False),
        UnitField("depthwise"),
    )
    out_channels = opt_prop_def(IntegerAttr[I64])
    kernel = prop_def(IntegerAttr[I64])
    stride = prop_def(IntegerAttr[I64])
    padding = prop_def(IntegerAttr[I64])
    groups = prop_def(IntegerAttr[I64])
    bias = prop_def(BoolAttr)
    depthwise = opt_prop_def(UnitAttr)

    def __init__(
        self,
        x: SSAValue,
        out_channels: int | None,
        kernel: int,
        stride: int = 1,
        padding: int = 0,
        groups: int = 1,
        bias: bool = False,
        depthwise: bool = False,
        layer: str | None = None,
    ) -> None:
        values = {
            "out_channels": out_channels,
            "kernel": kernel,
            "stride": stride,
            "padding": padding,
            "groups": groups,
            "bias": bias,
            "depthwise": depthwise,
        }
        super().__init__((x,), values, layer)

    def problems(self) -> Iterator[str]:
        """Also: the number of output channels is missing."""
        yield from super().problems()
        if self.out_channels is None and self.depthwise is None:
            yield "out_channels is missing"

    def infer_shape(self, inputs: Sequence[Shape]) -> Shape:
        """The window formula; a depthwise convolution keeps the channels."""
        x = inputs[0]
        kernel, stride, padding = int_of(self.kernel), int_of(self.stride), int_of(self.padding)
        out = None if self.out_channels is None else int_of(self.out_channels)
        if self.depthwise is None:
            if out is None:
                raise ShapeProblem("out_channels is missing")
            return conv_shape(x, out, kernel, stride, padding, int_of(self.groups))
        n, h, w, c = x
        groups = int_of(self.groups)
        if c is not None and ((out is not None and out != c) or groups not in (1, c)):
            told = f"{groups} groups and {c if out is None else out} output channels"
            raise ShapeProblem(f"a depthwise convolution of {c} channels cannot have {told}")
        return (
            n,
            window(h, kernel, stride, padding, "height"),
            window(w, kernel, stride, padding, "width"),
            out if c is None else c,
        )
