"""The eight activations.

Backward reads the output where the derivative follows from it, so that the input need not be kept; silu and
hardswish need the input.
"""

from __future__ import annotations

from trc.dialects.arch.activation import (
    EluOp,
    HardswishOp,
    LeakyReluOp,
    Relu6Op,
    ReluOp,
    SigmoidOp,
    SiluOp,
    TanhOp,
)
from trc.dialects.arch.base import float_of
from trc.layers.descriptor import BaseDescriptor, Builder, Layer, Materialised, Value
from trc.layers.registry import register
from trc_runtime.schema.kinds import KINDS, Kind, reads, writes


class ActivationDescriptor(BaseDescriptor):
    """An elementwise function of one input; `factor` names its float parameter, if it has one."""

    def __init__(self, name: str, saves: str = "y", factor: str | None = None) -> None:
        """`saves` is what backward reads beside dy: the output `y` or the input `x`."""
        params = ((factor, float),) if factor else ()
        self.saves_output = saves == "y"
        self.factor = factor
        self.fwd = KINDS.register(
            Kind(f"{name}_fwd", (*reads("x"), *writes("y")), params=params, may_alias=(("y", "x"),))
        )
        self.bwd = KINDS.register(
            Kind(f"{name}_bwd", (*reads("dy", saves), *writes("dx")), params=params, may_alias=(("dx", "dy"),))
        )

    def _params(self, layer: Layer) -> dict[str, bool | int | float | str]:
        return {} if self.factor is None else {self.factor: float_of(layer.op.properties[self.factor])}

    def forward(self, b: Builder) -> Value:
        """One elementwise node."""
        b.emit(self.fwd, reads=b.inputs, writes=[b.output], params=self._params(b.layer))
        return Materialised(b.output)

    inference = forward

    def backward(self, b: Builder) -> None:
        """Dx = dy times the derivative."""
        if (dx := b.input_grad(0)) is not None:
            saved = b.output if self.saves_output else b.inputs[0]
            b.emit(self.bwd, reads=[b.output_grad, saved], writes=[dx], params=self._params(b.layer))


register(ReluOp, ActivationDescriptor("relu"))
register(TanhOp, ActivationDescriptor("tanh"))
register(SiluOp, ActivationDescriptor("silu", saves="x"))
register(Relu6Op, ActivationDescriptor("relu6"))
register(LeakyReluOp, ActivationDescriptor("leaky_relu", factor="slope"))
register(HardswishOp, ActivationDescriptor("hardswish", saves="x"))
register(EluOp, ActivationDescriptor("elu", factor="alpha"))
register(SigmoidOp, ActivationDescriptor("sigmoid"))
