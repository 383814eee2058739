"""Merged layers: the chains of layers that they stand for.

They have no nodes of their own. The compiler sees their parts, under the parts' names, so that a network means and
costs the same however its layers were grouped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trc.dialects.arch.activation import Relu6Op, ReluOp
from trc.dialects.arch.base import UNKNOWN, LayerOp, Number, bool_of, float_of, int_of, tensor_of
from trc.dialects.arch.conv import ConvOp
from trc.dialects.arch.dense import AddOp, FcOp
from trc.dialects.arch.enums import Act, Shortcut
from trc.dialects.arch.merged import (
    BasicBlockOp,
    BottleneckOp,
    CbrOp,
    CbrpOp,
    ConvNormActOp,
    GapFcOp,
    InvertedResidualOp,
    ResidualOp,
)
from trc.dialects.arch.norm import Bn2dOp
from trc.dialects.arch.pool import GapOp, MaxPoolOp
from trc.dialects.attributes import string
from trc.layers.registry import WHOLE_INPUT, Part, register_merged

_ACTS: dict[Act, type[LayerOp]] = {Act.RELU: ReluOp, Act.RELU6: Relu6Op}


class _Chain:
    """Parts in the making: each call adds one and returns its place."""

    def __init__(self, op: LayerOp, norm: Mapping[str, Number]) -> None:
        self.parts: list[Part] = []
        self.norm = norm
        self._op = op
        self._names = iter(op.leaf_names)

    def add(self, kind: type[LayerOp], *inputs: int, **values: Number) -> int:
        properties = kind.fields_from(values)
        name = next(self._names, "")
        properties["layer"] = string(name)
        part = kind.create(result_types=[tensor_of(UNKNOWN)], properties=properties)
        part.location = self._op.location
        self.parts.append(Part(part, name, inputs))
        return len(self.parts) - 1

    def conv_bn(self, x: int, channels: int | None, kernel: int, stride: int = 1, depthwise: bool = False) -> int:
        """A convolution that keeps the size at stride 1, and its batch norm."""
        x = self.add(
            ConvOp, x, out_channels=channels, kernel=kernel, stride=stride, padding=kernel // 2, depthwise=depthwise
        )
        return self.add(Bn2dOp, x, **self.norm)


def _norm(op: ConvNormActOp | ResidualOp) -> dict[str, Number]:
    return {"momentum": float_of(op.momentum), "eps": float_of(op.eps)}


def _conv_norm_act(op: LayerOp) -> Sequence[Part]:
    """Convolution, batch norm, activation, and for a cbrp the pool."""
    assert isinstance(op, ConvNormActOp)
    chain = _Chain(op, _norm(op))
    x = chain.add(
        ConvOp,
        WHOLE_INPUT,
        out_channels=int_of(op.out_channels),
        kernel=int_of(op.kernel),
        stride=int_of(op.stride),
        padding=int_of(op.padding),
        groups=int_of(op.groups),
        bias=bool_of(op.bias),
    )
    x = chain.add(_ACTS[op.act.data], chain.add(Bn2dOp, x, **chain.norm))
    if isinstance(op, CbrpOp):
        kernel, stride, padding = map(int_of, (op.pool_kernel, op.pool_stride, op.pool_padding))
        chain.add(MaxPoolOp, x, kernel=kernel, stride=stride, padding=padding)
    return chain.parts


def _gap_fc(op: LayerOp) -> Sequence[Part]:
    assert isinstance(op, GapFcOp)
    chain = _Chain(op, {})
    chain.add(FcOp, chain.add(GapOp, WHOLE_INPUT), out_features=int_of(op.out_features), bias=bool_of(op.bias))
    return chain.parts


def _residual(op: LayerOp) -> Sequence[Part]:
    """Shortcut, stem, sum, and for the residual blocks the activation, in the order of the parts' names."""
    assert isinstance(op, ResidualOp)
    chain = _Chain(op, _norm(op))
    out, stride, act, shortcut = int_of(op.out_channels), int_of(op.stride), _ACTS[op.act.data], op.shortcut.data
    side = chain.conv_bn(WHOLE_INPUT, out, 1, stride) if shortcut is Shortcut.PROJECTION else WHOLE_INPUT
    x = WHOLE_INPUT
    if isinstance(op, BottleneckOp):
        mid = int_of(op.mid_channels)
        x = chain.add(act, chain.conv_bn(x, mid, 1))
        x = chain.add(act, chain.conv_bn(x, mid, 3, stride))
        x = chain.conv_bn(x, out, 1)
    elif isinstance(op, BasicBlockOp):
        x = chain.add(act, chain.conv_bn(x, out, 3, stride))
        x = chain.conv_bn(x, out, 3)
    else:
        assert isinstance(op, InvertedResidualOp)
        if op.expand_channels is not None:
            x = chain.add(act, chain.conv_bn(x, int_of(op.expand_channels), 1))
        x = chain.add(act, chain.conv_bn(x, None, 3, stride, depthwise=True))
        x = chain.conv_bn(x, out, 1)
    if shortcut is not Shortcut.NONE:
        x = chain.add(AddOp, side, x)
        if not isinstance(op, InvertedResidualOp):
            chain.add(act, x)
    return chain.parts


register_merged(CbrOp, _conv_norm_act)
register_merged(CbrpOp, _conv_norm_act)
register_merged(GapFcOp, _gap_fc)
register_merged(BottleneckOp, _residual)
register_merged(BasicBlockOp, _residual)
register_merged(InvertedResidualOp, _residual)
