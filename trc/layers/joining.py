"""Identity and the sum of two branches."""

from __future__ import annotations

from collections.abc import Iterable

from trc.dialects.arch.dense import AddOp, IdentityOp
from trc.layers.descriptor import BaseDescriptor, Builder, Deferred, Layer, Materialised, TensorDesc, Value
from trc.layers.registry import register
from trc.layers.values import AFFINE_ADD_ACT_FWD, NORM_ADD_ACT_FWD
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
        return b.value(0)

    inference = forward

    def backward(self, b: Builder) -> None:
        """Nothing: both gradients are the same tensor."""


class AddDescriptor(BaseDescriptor):
    """Shortcut plus stem; the gradient of both is that of the sum.

    Where a side is normalised and not yet in memory the sum applies that itself, and is deferred in turn, so that
    an activation behind it becomes part of the same node.
    """

    passes_gradient = True

    def forward(self, b: Builder) -> Value:
        """One elementwise sum."""
        side = _normalised(b)
        if side is None:
            return _plain_sum(b)
        x, other = side
        shortcut = b.value(other)
        if isinstance(shortcut, Deferred) and shortcut.is_norm and shortcut.open:
            reads = (*x.reads, *shortcut.reads)
        else:
            reads = (*x.reads, b.inputs[other])
        return Deferred(b.layer.name, NORM_ADD_ACT_FWD, reads)

    def inference(self, b: Builder) -> Value:
        """The same; the other side is always in memory."""
        side = _normalised(b)
        if side is None:
            return _plain_sum(b)
        x, other = side
        return Deferred(b.layer.name, AFFINE_ADD_ACT_FWD, (*x.reads, b.inputs[other]))

    def backward(self, b: Builder) -> None:
        """Nothing: the gradients of the inputs are that of the output."""


def _normalised(b: Builder) -> tuple[Deferred, int] | None:
    """A side that is normalised only, the stem if it is, and the index of the other side."""
    for index in (1, 0):
        value = b.value(index)
        if isinstance(value, Deferred) and value.owner is not None and value.open:
            return value, 1 - index
    return None


def _plain_sum(b: Builder) -> Value:
    b.emit(ADD_FWD, reads=b.inputs, writes=[b.output])
    return Materialised(b.output)


register(IdentityOp, IdentityDescriptor())
register(AddOp, AddDescriptor())
