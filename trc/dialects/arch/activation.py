"""Activations: one number in, one number out."""

from __future__ import annotations

from typing import ClassVar

from xdsl.dialects.builtin import Float64Type, FloatAttr
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, prop_def

from trc.dialects.arch.base import Field, FloatField, SameShapeOp


class ActivationOp(SameShapeOp):
    """A function of each element alone."""

    POSITIONWISE: ClassVar[bool] = True


class PlainActivationOp(ActivationOp):
    """An activation without parameters."""

    def __init__(self, x: SSAValue, layer: str | None = None) -> None:
        super().__init__((x,), {}, layer)


@irdl_op_definition
class ReluOp(PlainActivationOp):
    """max(x, 0): `%y = arch.relu %x layer "relu1"`."""

    name = "arch.relu"


@irdl_op_definition
class TanhOp(PlainActivationOp):
    """The hyperbolic tangent: `%y = arch.tanh %x`."""

    name = "arch.tanh"


@irdl_op_definition
class SiluOp(PlainActivationOp):
    """x sigmoid(x): `%y = arch.silu %x`."""

    name = "arch.silu"


@irdl_op_definition
class Relu6Op(PlainActivationOp):
    """min(max(x, 0), 6): `%y = arch.relu6 %x`."""

    name = "arch.relu6"


@irdl_op_definition
class LeakyReluOp(ActivationOp):
    """x where positive, slope x elsewhere: `%y = arch.leaky_relu %x {slope = 0.2}`."""

    name = "arch.leaky_relu"
    FIELDS: ClassVar[tuple[Field, ...]] = (FloatField("slope", 0.01, least=0.0, bounds="[)"),)
    slope = prop_def(FloatAttr[Float64Type])

    def __init__(self, x: SSAValue, slope: float = 0.01, layer: str | None = None) -> None:
        super().__init__((x,), {"slope": slope}, layer)


@irdl_op_definition
class HardswishOp(PlainActivationOp):
    """x min(max(x + 3, 0), 6) / 6: `%y = arch.hardswish %x`."""

    name = "arch.hardswish"


@irdl_op_definition
class EluOp(ActivationOp):
    """x where positive, alpha (exp(x) - 1) elsewhere: `%y = arch.elu %x {alpha = 0.5}`."""

    name = "arch.elu"
    FIELDS: ClassVar[tuple[Field, ...]] = (FloatField("alpha", 1.0, least=0.0),)
    alpha = prop_def(FloatAttr[Float64Type])

    def __init__(self, x: SSAValue, alpha: float = 1.0, layer: str | None = None) -> None:
        super().__init__((x,), {"alpha": alpha}, layer)


@irdl_op_definition
class SigmoidOp(PlainActivationOp):
    """1 / (1 + exp(-x)): `%y = arch.sigmoid %x`."""

    name = "arch.sigmoid"
