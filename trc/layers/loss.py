"""Softmax cross entropy: the loss, its gradient, and the counts of correct samples."""

from __future__ import annotations

from collections.abc import Iterable

from trc.dialects.arch.base import float_of
from trc.dialects.arch.loss import SoftmaxCeOp
from trc.layers.descriptor import BaseDescriptor, Builder, Layer, Materialised, TensorDesc, Value, train_only
from trc.layers.registry import register
from trc_runtime.schema.kinds import KINDS, Kind, reads, writes
from trc_runtime.schema.regions import Region

_SMOOTHING = (("label_smoothing", float),)

SOFTMAX_CE_FWD = KINDS.register(
    Kind(
        "softmax_ce_fwd",
        (*reads("logits", "label"), *writes("probs", "loss", "top1", "top5")),
        params=_SMOOTHING,
    )
)
SOFTMAX_CE_BWD = KINDS.register(
    Kind(
        "softmax_ce_bwd",
        (*reads("probs", "label"), *writes("dlogits")),
        scalars=("scaling",),
        params=_SMOOTHING,
    )
)
SOFTMAX_CE_INFER = KINDS.register(
    Kind(
        "softmax_ce_infer",
        (*reads("logits", "label"), *writes("predicted", "loss", "top1", "top5")),
        params=_SMOOTHING,
    )
)

_RESULTS = ("loss", "top1", "top5")


class SoftmaxCeDescriptor(BaseDescriptor):
    """The last layer. Its gradient carries the loss scale."""

    is_loss = True

    def tensors(self, layer: Layer) -> Iterable[TensorDesc]:
        """The probabilities, in the master type; the results are the network's own."""
        yield TensorDesc("probs", Region.T_TEMP_FP32, train_only(layer.output))

    def forward(self, b: Builder) -> Value:
        """Probabilities, mean loss and counts."""
        probs = b.tensor("probs")
        b.emit(SOFTMAX_CE_FWD, reads=[*b.inputs, "label"], writes=[probs, *_RESULTS], params=_smoothing(b.layer))
        return Materialised(probs)

    def backward(self, b: Builder) -> None:
        """Scaled by `scaling` and divided by the batch."""
        if (dx := b.input_grad(0)) is not None:
            b.emit(
                SOFTMAX_CE_BWD,
                reads=[b.tensor("probs"), "label"],
                writes=[dx],
                scalars=["scaling"],
                params=_smoothing(b.layer),
            )

    def inference(self, b: Builder) -> Value:
        """Predicted classes, mean loss and counts."""
        b.emit(
            SOFTMAX_CE_INFER, reads=[*b.inputs, "label"], writes=["predicted", *_RESULTS], params=_smoothing(b.layer)
        )
        return Materialised("predicted")


def _smoothing(layer: Layer) -> dict[str, bool | int | float | str]:
    return {"label_smoothing": float_of(layer.op.properties["label_smoothing"])}


register(SoftmaxCeOp, SoftmaxCeDescriptor())
