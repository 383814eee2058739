"""Between steps 4 and 6, for mixed precision: the channels of the input."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from trc.dialects.arch import (
    BasicBlockOp,
    BottleneckOp,
    CbrOp,
    CbrpOp,
    ConvOp,
    InvertedResidualOp,
    Shortcut,
    int_of,
    shape_of,
)
from trc.passes.arch.rewriting import layers, models, set_shape

MULTIPLE = 4
"""What the channels of an image are rounded up to: tensor cores read four halves at a time."""


@dataclass(frozen=True)
class ArchAlignAmpChannelsPass(ModulePass):
    """Round the input's channels up to a multiple of 4 where only convolutions read it (for mixed precision).

    The added channels hold zeros. They change nothing but the shape of the first weight, so it is done only where every
    reader mixes all channels: not for depthwise or grouped convolutions, pools, norms, sums or fully connected layers.
    """

    name = "arch-align-amp-channels"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Align every model of the module."""
        for model in models(op):
            layers(model)
            n, h, w, channels = shape_of(model.input)
            readers = [use.operation for use in model.input.uses]
            if channels is None or channels % MULTIPLE == 0 or not readers:
                continue
            if all(map(mixes_channels, readers)):
                set_shape(model.input, (n, h, w, -(-channels // MULTIPLE) * MULTIPLE))


def mixes_channels(op: Operation) -> bool:
    """Whether an operation reads its input by a convolution over all channels, and in no other way."""
    if isinstance(op, ConvOp):
        return op.depthwise is None and int_of(op.groups) == 1
    if isinstance(op, CbrOp | CbrpOp):
        return int_of(op.groups) == 1
    if isinstance(op, BottleneckOp | BasicBlockOp):
        return op.shortcut.data is Shortcut.PROJECTION
    if isinstance(op, InvertedResidualOp):
        return op.shortcut.data is Shortcut.NONE and op.expand_channels is not None
    return False
