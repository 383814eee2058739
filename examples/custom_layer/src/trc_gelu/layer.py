"""The compiler's side of GELU: operation, factory, kinds and descriptor. Importing this module registers them.

    from trc_gelu.layer import gelu

    net = trc.seq(trc.fc(128), gelu(), trc.fc(10))

In a .bp text `gelu()` works wherever the package is installed.
"""

from __future__ import annotations

from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition

from trc.blueprint import Layer, layer_of
from trc.blueprint import register as register_factory
from trc.blueprint.parameters import Signature
from trc.dialects.arch import ActivationOp
from trc.dialects.plugins import register_op
from trc.layers.descriptor import BaseDescriptor, Builder, Materialised, Value
from trc.layers.registry import register as register_descriptor
from trc_runtime.schema.kinds import KINDS, Kind, reads, writes

__trc_library__ = True
"""Error messages point at the line that calls `gelu`, not at this file."""


@irdl_op_definition
class GeluOp(ActivationOp):
    """x Phi(x), Phi the distribution function of the normal distribution: `%y = arch.gelu %x layer "gelu1"`."""

    name = "arch.gelu"

    def __init__(self, x: SSAValue, layer: str | None = None) -> None:
        super().__init__((x,), {}, layer)


# What the nodes are. Each element is read before it is written, so the result may take the place of what it is
# computed from.
FORWARD = KINDS.register(Kind("gelu_fwd", (*reads("x"), *writes("y")), may_alias=(("y", "x"),)))
BACKWARD = KINDS.register(Kind("gelu_bwd", (*reads("dy", "x"), *writes("dx")), may_alias=(("dx", "dy"),)))


class GeluDescriptor(BaseDescriptor):
    """One node forward and one backward. The tensors for the result are those of every layer: see BaseDescriptor."""

    def forward(self, b: Builder) -> Value:
        """Emit y = gelu(x)."""
        b.emit(FORWARD, reads=b.inputs, writes=[b.output])
        return Materialised(b.output)

    inference = forward

    def backward(self, b: Builder) -> None:
        """Emit dx = dy gelu'(x), if anyone needs it. Since x is read here, the compiler keeps it until then."""
        if (dx := b.input_grad(0)) is not None:
            b.emit(BACKWARD, reads=[b.output_grad, b.inputs[0]], writes=[dx])


register_op(GeluOp)
register_factory(Signature("gelu"), lambda x, layer: GeluOp(x, layer=layer.name))
register_descriptor(GeluOp, GeluDescriptor())


def gelu(*, name: str | None = None) -> Layer:
    """The value times the probability that a normal variable is smaller: x (1 + erf(x / sqrt 2)) / 2."""
    return layer_of("gelu", name=name)
