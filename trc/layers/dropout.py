"""Inverted dropout."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from trc.dialects.arch.base import float_of
from trc.dialects.arch.dense import DropoutOp
from trc.layers.descriptor import BaseDescriptor, Builder, Layer, Materialised, TensorDesc, Value, features, train_only
from trc.layers.registry import register
from trc_runtime.schema.kinds import KINDS, Access, Kind, Operand, reads, writes
from trc_runtime.schema.regions import Region

DROPOUT_FWD = KINDS.register(
    Kind(
        "dropout_fwd",
        (*reads("x"), *writes("y"), Operand("mask", Access.WRITE, optional=True)),
        scalars=("seed", "iteration"),
        params=(("p", float), ("stream", int)),
        may_alias=(("y", "x"),),
    )
)
DROPOUT_BWD = KINDS.register(
    Kind("dropout_bwd", (*reads("dy", "mask"), *writes("dx")), params=(("p", float),), may_alias=(("dx", "dy"),))
)


class DropoutDescriptor(BaseDescriptor):
    """Zero with probability p, else scale by 1 / (1 - p); nothing at all in inference."""

    random = True

    def tensors(self, layer: Layer) -> Iterable[TensorDesc]:
        """The result, and the mask where backward will read it."""
        yield from features(layer)
        if layer.wanted[0]:
            yield TensorDesc("mask", Region.S_MASK, train_only(layer.output))

    def forward(self, b: Builder) -> Value:
        """Draw, scale and keep the mask."""
        mask = [b.tensor("mask")] if b.layer.wanted[0] else []
        b.emit(
            DROPOUT_FWD,
            reads=b.inputs,
            writes=[b.output, *mask],
            scalars=["seed", "iteration"],
            params={"p": float_of(b.layer.op.properties["p"]), "stream": stream_of(b.layer.name)},
        )
        return Materialised(b.output)

    def backward(self, b: Builder) -> None:
        """The same scale where the mask is set."""
        if (dx := b.input_grad(0)) is not None:
            b.emit(
                DROPOUT_BWD,
                reads=[b.output_grad, b.tensor("mask")],
                writes=[dx],
                params={"p": float_of(b.layer.op.properties["p"])},
            )

    def inference(self, b: Builder) -> Value:
        """The input itself."""
        return b.value(0)


def stream_of(layer: str) -> int:
    """The random stream of a dropout layer: CRC-32 of its name."""
    return zlib.crc32(f"dropout/{layer}".encode())


register(DropoutOp, DropoutDescriptor())
