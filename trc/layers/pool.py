"""Pools: maxima and means over windows, means over whole maps."""

from __future__ import annotations

from collections.abc import Iterable

from trc.dialects.arch.base import int_of
from trc.dialects.arch.pool import AvgPoolOp, GapOp, MaxPoolOp
from trc.layers.dense import CopyDescriptor
from trc.layers.descriptor import (
    BaseDescriptor,
    Builder,
    Layer,
    Materialised,
    TensorDesc,
    Value,
    features,
    train_only,
)
from trc.layers.registry import register
from trc_runtime.schema.kinds import KINDS, Access, Kind, Operand, reads, writes
from trc_runtime.schema.regions import Region

_WINDOW = (("kernel", int), ("stride", int), ("padding", int))

MAX_POOL_FWD = KINDS.register(
    Kind(
        "max_pool_fwd",
        (*reads("x"), *writes("y"), Operand("mask", Access.WRITE, optional=True)),
        params=_WINDOW,
    )
)
"""The mask holds row * kernel + column of each window's first maximum, -1 for a window without cells."""

MAX_POOL_BWD = KINDS.register(Kind("max_pool_bwd", (*reads("dy", "mask"), *writes("dx")), params=_WINDOW))
AVG_POOL_FWD = KINDS.register(Kind("avg_pool_fwd", (*reads("x"), *writes("y")), params=_WINDOW))
"""The mean of the cells that exist: padding does not count."""

AVG_POOL_BWD = KINDS.register(Kind("avg_pool_bwd", (*reads("dy"), *writes("dx")), params=_WINDOW))
GAP_FWD = KINDS.register(Kind("gap_fwd", (*reads("x"), *writes("y"))))
GAP_BWD = KINDS.register(Kind("gap_bwd", (*reads("dy"), *writes("dx"))))

LARGEST_WINDOW = 11
"""The largest kernel whose cells a mask of signed bytes can number."""


class MaxPoolDescriptor(BaseDescriptor):
    """The maximum of each window; backward follows the mask, so the input need not be kept."""

    def problems(self, layer: Layer) -> Iterable[str]:
        """A window whose cells do not fit into a byte."""
        kernel = int_of(layer.op.properties["kernel"])
        if kernel > LARGEST_WINDOW:
            yield (
                f"kernel is {kernel}, and max pool goes up to {LARGEST_WINDOW}: a byte holds the place of the maximum; "
                "use two pools one after another"
            )

    def tensors(self, layer: Layer) -> Iterable[TensorDesc]:
        """The result, and the mask where backward will read it."""
        yield from features(layer)
        if layer.wanted[0]:
            yield TensorDesc("mask", Region.S_MASK, train_only(layer.output))

    def forward(self, b: Builder) -> Value:
        """The maxima and where they were."""
        mask = [b.tensor("mask")] if b.layer.wanted[0] else []
        b.emit(MAX_POOL_FWD, reads=b.inputs, writes=[b.output, *mask], params=window(b.layer))
        return Materialised(b.output)

    def inference(self, b: Builder) -> Value:
        """The maxima."""
        b.emit(MAX_POOL_FWD, reads=b.inputs, writes=[b.output], params=window(b.layer))
        return Materialised(b.output)

    def backward(self, b: Builder) -> None:
        """Each gradient to the cell of its maximum."""
        if (dx := b.input_grad(0)) is not None:
            b.emit(MAX_POOL_BWD, reads=[b.output_grad, b.tensor("mask")], writes=[dx], params=window(b.layer))


class AvgPoolDescriptor(BaseDescriptor):
    """The mean of each window."""

    def forward(self, b: Builder) -> Value:
        """One node."""
        b.emit(AVG_POOL_FWD, reads=b.inputs, writes=[b.output], params=window(b.layer))
        return Materialised(b.output)

    inference = forward

    def backward(self, b: Builder) -> None:
        """Each gradient spread over its window's cells."""
        if (dx := b.input_grad(0)) is not None:
            b.emit(AVG_POOL_BWD, reads=[b.output_grad], writes=[dx], params=window(b.layer))


def window(layer: Layer) -> dict[str, bool | int | float | str]:
    """Kernel, stride and padding of a pool."""
    return {name: int_of(layer.op.properties[name]) for name, _ in _WINDOW}


register(MaxPoolOp, MaxPoolDescriptor())
register(AvgPoolOp, AvgPoolDescriptor())
register(GapOp, CopyDescriptor(GAP_FWD, GAP_BWD))
