"""Reading a chain of layers backwards as convolutions, norms and activations, however they are grouped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import Float64Type, FloatAttr

from trc.dialects.arch import (
    Act,
    Bn2dOp,
    CbrOp,
    ConvOp,
    InvertedResidualOp,
    LayerOp,
    Relu6Op,
    ReluOp,
    Shortcut,
    bool_of,
    int_of,
    shape_of,
)

ACTS: dict[type[LayerOp], Act] = {ReluOp: Act.RELU, Relu6Op: Act.RELU6}
"""The activations that a merged layer can hold."""


@dataclass(frozen=True)
class Conv:
    """A convolution inside a chain."""

    name: str
    inputs: int | None
    outputs: int
    kernel: int
    stride: int
    padding: int
    groups: int
    bias: bool

    def is_plain(self, kernel: int, outputs: int | None = None, stride: int | None = 1) -> bool:
        """Whether it has this kernel, keeps the size at stride 1, mixes all channels and has no bias."""
        return (
            self.kernel == kernel
            and self.padding == kernel // 2
            and self.groups == 1
            and not self.bias
            and outputs in (None, self.outputs)
            and stride in (None, self.stride)
        )

    def is_depthwise(self, kernel: int) -> bool:
        """Whether it has this kernel, keeps the size at stride 1, treats each channel alone and has no bias."""
        return (
            self.kernel == kernel
            and self.padding == kernel // 2
            and self.groups == self.inputs == self.outputs
            and not self.bias
        )


@dataclass(frozen=True)
class Norm:
    """A batch norm of maps inside a chain."""

    name: str
    momentum: FloatAttr[Float64Type]
    eps: FloatAttr[Float64Type]

    def like(self, other: Norm) -> bool:
        """Whether the parameters are the same."""
        return self.momentum == other.momentum and self.eps == other.eps


@dataclass(frozen=True)
class Activation:
    """A relu or relu6 inside a chain."""

    name: str
    act: Act


Piece = Conv | Norm | Activation


def conv_piece(op: ConvOp | CbrOp, name: str) -> Conv | None:
    """The convolution of a layer, if its channels are known."""
    if op.out_channels is None:
        return None
    return Conv(
        name,
        shape_of(op.operands[0])[3],
        int_of(op.out_channels),
        int_of(op.kernel),
        int_of(op.stride),
        int_of(op.padding),
        int_of(op.groups),
        bool_of(op.bias),
    )


def is_open(op: object) -> bool:
    """Whether a layer is an inverted residual that more may be found around: neither a sum nor a first convolution."""
    return isinstance(op, InvertedResidualOp) and op.shortcut.data is Shortcut.NONE and op.expand_channels is None


def pieces_of(op: object) -> Sequence[Piece]:
    """What a layer is made of; nothing for a layer that no merged one can hold."""
    if isinstance(op, ConvOp):
        conv = conv_piece(op, op.layer_name)
        return [] if conv is None else [conv]
    if isinstance(op, Bn2dOp):
        return [Norm(op.layer_name, op.momentum, op.eps)]
    if isinstance(op, ReluOp | Relu6Op):
        return [Activation(op.layer_name, ACTS[type(op)])]
    if isinstance(op, CbrOp) and len(op.leaf_names) == 3:
        conv_name, norm, act = op.leaf_names
        conv = conv_piece(op, conv_name)
        return [] if conv is None else [conv, Norm(norm, op.momentum, op.eps), Activation(act, op.act.data)]
    if isinstance(op, InvertedResidualOp) and is_open(op) and len(op.leaf_names) == 5:
        conv1, norm1, act, conv2, norm2 = op.leaf_names
        inputs, outputs = shape_of(op.operands[0])[3], int_of(op.out_channels)
        if inputs is None:
            return []
        return [
            Conv(conv1, inputs, inputs, 3, int_of(op.stride), 1, inputs, False),
            Norm(norm1, op.momentum, op.eps),
            Activation(act, op.act.data),
            Conv(conv2, inputs, outputs, 1, 1, 0, 1, False),
            Norm(norm2, op.momentum, op.eps),
        ]
    return []
