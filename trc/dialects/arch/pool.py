"""Pools: maxima and means over windows or whole maps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from xdsl.dialects.builtin import I64, IntegerAttr
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, prop_def

from trc.dialects.arch.base import Field, IntField, Shape, UnaryOp, int_of, window


def pool_shape(x: Shape, kernel: int, stride: int, padding: int) -> Shape:
    """The shape after a square pool; ShapeProblem where the kernel does not fit."""
    n, h, w, c = x
    return n, window(h, kernel, stride, padding, "height"), window(w, kernel, stride, padding, "width"), c


def padding_problem(kernel: int, padding: int, prefix: str = "") -> str | None:
    """A window that holds nothing but padding has neither maximum nor mean."""
    if padding < kernel:
        return None
    return (
        f"{prefix}padding {padding} is not smaller than {prefix}kernel {kernel}, so a window could hold padding alone"
    )


class PoolOp(UnaryOp):
    """A square window; cells of the padding do not count."""

    FIELDS: ClassVar[tuple[Field, ...]] = (IntField("kernel"), IntField("stride"), IntField("padding", 0, least=0))
    kernel = prop_def(IntegerAttr[I64])
    stride = prop_def(IntegerAttr[I64])
    padding = prop_def(IntegerAttr[I64])

    def __init__(self, x: SSAValue, kernel: int, stride: int, padding: int = 0, layer: str | None = None) -> None:
        super().__init__((x,), {"kernel": kernel, "stride": stride, "padding": padding}, layer)

    def problems(self) -> Iterator[str]:
        """Also: windows of padding."""
        yield from super().problems()
        if (found := padding_problem(int_of(self.kernel), int_of(self.padding))) is not None:
            yield found

    def infer_shape(self, inputs: Sequence[Shape]) -> Shape:
        """The window formula; the channels stay."""
        return pool_shape(inputs[0], int_of(self.kernel), int_of(self.stride), int_of(self.padding))


@irdl_op_definition
class MaxPoolOp(PoolOp):
    """The maximum of each window: `%y = arch.max_pool %x {kernel = 2, stride = 2} layer "max_pool1"`."""

    name = "arch.max_pool"


@irdl_op_definition
class AvgPoolOp(PoolOp):
    """The mean of each window's cells, padding not counted: `%y = arch.avg_pool %x {kernel = 2, stride = 2}`."""

    name = "arch.avg_pool"


@irdl_op_definition
class GapOp(UnaryOp):
    """The mean of each channel's map: `%y = arch.gap %x layer "gap1" : tensor<?x1x1x512xf32>`."""

    name = "arch.gap"

    def __init__(self, x: SSAValue, layer: str | None = None) -> None:
        super().__init__((x,), {}, layer)

    def infer_shape(self, inputs: Sequence[Shape]) -> Shape:
        """One place, all channels."""
        return inputs[0][0], 1, 1, inputs[0][3]
