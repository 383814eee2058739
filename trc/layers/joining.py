"""Identity and the sum of two branches."""

from __future__ import annotations

from collections.abc import Iterable

from trc.dialects.arch.dense import AddOp, IdentityOp
from trc.layers.descriptor import BaseDescriptor, Builder, Layer, Materialised, TensorDesc, Value
from trc.layers.registry import register
from trc_runtime.schema.kinds import KINDS, Kind, reads, writes

ADD_FWD = KINDS.register(Kind("add_fwd", (*reads("a", "b"), *writes("y")), may_alias=(("y", "a"), ("y", "b"))))


class IdentityDescriptor(BaseDescriptor):
    """The input itself; no tensor, no node."""

    alias = True
    passes_gradient = True

    def tensors(self, layer: Layer) -> Iterable[TensorDesc]:
        """None."""
        return ()

    def forward(self, b: Builder) -> Value:
        """The input."""
        return Materialised(b.inputs[0])

    inference = forward

    def backward(self, b: Builder) -> None:
        """Nothing: both gradients are the same tensor."""


class AddDescriptor(BaseDescriptor):
    """Shortcut plus stem; the gradient of both is that of the sum."""

    passes_gradient = True

    def forward(self, b: Builder) -> Value:
        """One elementwise sum."""
        b.emit(ADD_FWD, reads=b.inputs, writes=[b.output])
        return Materialised(b.output)

    inference = forward

    def backward(self, b: Builder) -> None:
        """Nothing: the gradients of the inputs are that of the output."""


register(IdentityOp, IdentityDescriptor())
register(AddOp, AddDescriptor())
