"""Fully connected layers, flatten and channel padding."""

from __future__ import annotations

from collections.abc import Iterable

from trc.dialects.arch.base import bool_of, int_of
from trc.dialects.arch.dense import ChannelPaddingOp, FcOp, FlattenOp
from trc.layers.descriptor import (
    BaseDescriptor,
    Builder,
    Deferred,
    Layer,
    Materialised,
    TensorDesc,
    Value,
    constant_shape,
    features,
    working,
)
from trc.layers.registry import register
from trc.layers.values import ACT, NO_ACT
from trc_runtime.schema.kinds import KINDS, Access, Kind, Operand, reads, writes
from trc_runtime.schema.plan import Initial
from trc_runtime.schema.regions import Region

FLATTEN_FWD = KINDS.register(Kind("flatten_fwd", (*reads("x"), *writes("y")), may_alias=(("y", "x"),)))
FLATTEN_BWD = KINDS.register(Kind("flatten_bwd", (*reads("dy"), *writes("dx")), may_alias=(("dx", "dy"),)))
CHANNEL_PADDING_FWD = KINDS.register(Kind("channel_padding_fwd", (*reads("x"), *writes("y"))))
CHANNEL_PADDING_BWD = KINDS.register(Kind("channel_padding_bwd", (*reads("dy"), *writes("dx"))))
FC_FWD = KINDS.register(
    Kind("fc_fwd", (*reads("x", "weight"), Operand("bias", Access.READ, optional=True), *writes("y")), params=ACT)
)
"""y = act(x W^T + bias), rounded once."""

FC_BWD_DATA = KINDS.register(
    Kind("fc_bwd_data", (*reads("dy", "weight"), Operand("x", Access.READ, optional=True), *writes("dx")), params=ACT)
)
"""dx = dy W; where x is given it is the result of the activation, and dx the gradient of what went into that."""

FC_BWD_WEIGHT = KINDS.register(Kind("fc_bwd_weight", (*reads("dy", "x"), *writes("dweight"))))
FC_BWD_BIAS = KINDS.register(Kind("fc_bwd_bias", (*reads("dy"), *writes("dbias"))))


class CopyDescriptor(BaseDescriptor):
    """A layer without parameters that backward needs nothing of but the gradient: one node there, one back."""

    def __init__(self, fwd: Kind, bwd: Kind) -> None:
        """`fwd` reads x and writes y, `bwd` reads dy and writes dx."""
        self.fwd = fwd
        self.bwd = bwd

    def forward(self, b: Builder) -> Value:
        """One node."""
        b.emit(self.fwd, reads=b.inputs, writes=[b.output])
        return Materialised(b.output)

    inference = forward

    def backward(self, b: Builder) -> None:
        """One node back."""
        if (dx := b.input_grad(0)) is not None:
            b.emit(self.bwd, reads=[b.output_grad], writes=[dx])


class FcDescriptor(BaseDescriptor):
    """y = x W^T + b; x is read in HWC order where it is a map.

    Two forms. Materialised: only that. Deferred, the default: a rectifier behind it becomes part of the product, and
    one before it, if nobody else reads it, has its derivative applied where this layer writes the gradient.
    """

    forms: tuple[str, ...] = ("materialised", "deferred")
    has_parameters = True

    def masks(self, layer: Layer) -> bool:
        """Unless the layer was told to compute the product only."""
        return layer.form != self.forms[0]

    def tensors(self, layer: Layer) -> Iterable[TensorDesc]:
        """Weight [out, 1, 1, in], bias [1, 1, 1, out] if any, and the results."""
        _, height, width, depth = layer.inputs[0][0]
        out, fan = int_of(layer.op.properties["out_features"]), height * width * depth
        # One shape a column, so that a map of another size in some variant shows as an inconsistent weight.
        weights = tuple((out, 1, 1, h * w * c) for _, h, w, c in layer.inputs[0])
        yield TensorDesc(
            "weight", Region.W_FC_WEIGHT, weights, Initial("kaiming_uniform", fan=fan), parameter=True, half=True
        )
        if has_bias(layer):
            yield TensorDesc("bias", Region.W_FC_BIAS, constant_shape((1, 1, 1, out)), parameter=True)
        yield from features(layer)

    def forward(self, b: Builder) -> Value:
        """One product with the bias added, left to the reader, so that an activation becomes part of it."""
        bias = [b.tensor("bias")] if has_bias(b.layer) else []
        reads = (*b.inputs, working(b), *bias)
        if b.choose(("deferred",)):
            return Deferred(b.layer.name, FC_FWD, reads)
        b.emit(FC_FWD, reads=reads, writes=[b.output], params={"act": NO_ACT})
        return Materialised(b.output)

    inference = forward

    def backward(self, b: Builder) -> None:
        """Weight, bias and data gradients as nodes of their own, so that they can overlap."""
        dy = b.output_grad
        b.emit(FC_BWD_WEIGHT, reads=[dy, b.inputs[0]], writes=[b.tensor("weight.grad")])
        if has_bias(b.layer):
            b.emit(FC_BWD_BIAS, reads=[dy], writes=[b.tensor("bias.grad")])
        if (dx := b.input_grad(0)) is not None:
            x = b.value(0)
            act = x.act if isinstance(x, Materialised) else NO_ACT
            of = [] if act == NO_ACT else [b.inputs[0]]
            b.emit(FC_BWD_DATA, reads=[dy, working(b), *of], writes=[dx], params={"act": act})


def has_bias(layer: Layer) -> bool:
    """Whether a fully connected layer has a bias (the default)."""
    attribute = layer.op.properties.get("bias")
    return attribute is None or bool_of(attribute)


register(FlattenOp, CopyDescriptor(FLATTEN_FWD, FLATTEN_BWD))
register(ChannelPaddingOp, CopyDescriptor(CHANNEL_PADDING_FWD, CHANNEL_PADDING_BWD))
register(FcOp, FcDescriptor())
