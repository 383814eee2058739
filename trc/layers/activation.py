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
from trc.layers.descriptor import BaseDescriptor, Builder, Deferred, Layer, Materialised, Value
from trc.layers.registry import register
from trc.layers.values import NO_ACT
from trc_runtime.schema.kinds import KINDS, Kind, reads, writes


class ActivationDescriptor(BaseDescriptor):
    """An elementwise function of one input; `factor` names its float parameter, if it has one.

    With `folds` it becomes part of a deferred input without activation that nobody else reads: of a normalised value
    without any node, of a sum or a product as the node that writes it. Backward is then left to the only reader of the
    result, if that can.
    """

    def __init__(self, name: str, saves: str = "y", factor: str | None = None, folds: bool = False) -> None:
        """`saves` is what backward reads beside dy: the output `y` or the input `x`."""
        self.act = name if folds else None
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
        """One elementwise node, or none."""
        x = b.value(0)
        if self.act is not None and isinstance(x, Deferred) and x.open and b.sole(0):
            if x.owner is not None:
                return x.fold(b.layer.name, self.act)
            b.emit(x.kind, reads=x.reads, writes=[b.output], params={"act": self.act})
        else:
            b.emit(self.fwd, reads=b.inputs, writes=[b.output], params=self._params(b.layer))
        left = self.act is not None and b.layer.wanted[0] and b.reader_masks
        return Materialised(b.output, act=self.act if left and self.act is not None else NO_ACT)

    inference = forward

    def backward(self, b: Builder) -> None:
        """Dx = dy times the derivative."""
        if (dx := b.input_grad(0)) is not None:
            saved = b.output if self.saves_output else b.inputs[0]
            b.emit(self.bwd, reads=[b.output_grad, saved], writes=[dx], params=self._params(b.layer))


register(ReluOp, ActivationDescriptor("relu", folds=True))
register(TanhOp, ActivationDescriptor("tanh"))
register(SiluOp, ActivationDescriptor("silu", saves="x"))
register(Relu6Op, ActivationDescriptor("relu6", folds=True))
register(LeakyReluOp, ActivationDescriptor("leaky_relu", factor="slope"))
register(HardswishOp, ActivationDescriptor("hardswish", saves="x"))
register(EluOp, ActivationDescriptor("elu", factor="alpha"))
register(SigmoidOp, ActivationDescriptor("sigmoid"))
