"""Batch normalisation."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import Float64Type, FloatAttr
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, prop_def

from trc.dialects.arch.base import Field, FloatField, SameShapeOp

NORM_FIELDS: tuple[Field, ...] = (
    FloatField("momentum", 0.1, least=0.0, most=1.0, bounds="[]"),
    FloatField("eps", 1e-5, least=0.0),
)
"""The parameters of a batch norm, alone or inside a merged layer. Momentum is the weight of the new sample."""


class NormOp(SameShapeOp):
    """Batch norm over all axes but the channels, with a scale and a shift for each channel."""

    FIELDS: ClassVar[tuple[Field, ...]] = NORM_FIELDS
    momentum = prop_def(FloatAttr[Float64Type])
    eps = prop_def(FloatAttr[Float64Type])

    def __init__(self, x: SSAValue, momentum: float = 0.1, eps: float = 1e-5, layer: str | None = None) -> None:
        super().__init__((x,), {"momentum": momentum, "eps": eps}, layer)


@irdl_op_definition
class BnOp(NormOp):
    """A batch norm as the BluePrint has it; `arch-rename-bn` decides which: `%y = arch.bn %x {eps = 0.001}`."""

    name = "arch.bn"


@irdl_op_definition
class Bn1dOp(NormOp):
    """A batch norm of vectors: `%y = arch.bn1d %x layer "bn1"`."""

    name = "arch.bn1d"


@irdl_op_definition
class Bn2dOp(NormOp):
    """A batch norm of maps: `%y = arch.bn2d %x layer "bn1"`."""

    name = "arch.bn2d"
