"""Softmax cross entropy with exact log-softmax, label smoothing, and top-1 and top-5 counts.

The target is (1 - s) on the label plus s / classes everywhere. With z the logits less their row's maximum and
L = log sum exp z, a sample's loss is L - (1 - s) z[label] - s / classes * sum z; the loss is the batch's mean.

A sample counts as top-k if fewer than k classes beat its label. A class beats it with a greater logit, or with an
equal one and a lower index. A row with a NaN is never right.

Logits and their gradient may be of half storage; probabilities and results are of the master type.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from trc_runtime.cpu.bind import Array, BoundNode
from trc_runtime.cpu.kernels.blocks import Whole
from trc_runtime.cpu.registry import Run, kernel

TOP = 5
"""The k of top-k, besides 1; with fewer classes it is their number."""


def _smoothing(node: BoundNode) -> float:
    smoothing = node.number("label_smoothing")
    if not 0 <= smoothing < 1:
        raise node.problem(f"label_smoothing must be in [0, 1), not {smoothing}")
    return smoothing


class _Labels:
    """The labels of a batch and where they stand in a flat (samples, classes) array."""

    def __init__(self, node: BoundNode, samples: int, classes: int) -> None:
        self.label = node.flat("label")
        if self.label.size != samples:
            raise node.problem(f"has {samples} rows of logits and {self.label.size} labels")
        self.classes = classes
        self.place = node.scratch((samples,), np.int64)
        self._row = np.arange(samples, dtype=np.int64) * classes
        self._node = node

    def locate(self) -> None:
        """Compute `place`. ValueError for a label outside the classes."""
        np.add(self._row, self.label, out=self.place)
        low, high = int(np.min(self.label)), int(np.max(self.label))
        if low < 0 or high >= self.classes:
            raise self._node.problem(f"label {low if low < 0 else high} is not one of {self.classes} classes")


def _metrics(node: BoundNode, logits: Array, z: Array) -> tuple[_Labels, Callable[[], Array]]:
    """What forward and inference share: returns a function that computes loss, top1, top5 and leaves z in `z`.

    That function returns the rows' sums of exp(z), (samples, 1). `z` may be the logits' own memory.
    """
    samples, classes = logits.shape
    labels = _Labels(node, samples, classes)
    smoothing = _smoothing(node)
    loss, top1, top5 = node.flat("loss"), node.flat("top1"), node.flat("top5")
    row_max, total, chosen, row_loss = (node.scratch((samples, 1)) for _ in range(4))
    exponent = node.scratch((samples, classes))
    flags, other = node.scratch((samples, classes), np.bool_), node.scratch((samples, classes), np.bool_)
    rank, equal = node.scratch((samples,), np.int64), node.scratch((samples,), np.int64)
    before = np.arange(classes, dtype=np.int32)[None, :]
    label_column = labels.label[:, None]
    flat = z.reshape(-1)
    right = flags.reshape(-1)[:samples]
    most = min(TOP, classes)

    def run() -> Array:
        labels.locate()
        np.maximum.reduce(logits, axis=1, out=row_max, keepdims=True)
        np.subtract(logits, row_max, out=z)
        np.exp(z, out=exponent)
        np.add.reduce(exponent, axis=1, out=total, keepdims=True)
        np.take(flat, labels.place, out=chosen[:, 0], mode="clip")

        np.log(total, out=row_loss)
        if smoothing:
            np.multiply(chosen, 1 - smoothing, out=row_max)
            np.subtract(row_loss, row_max, out=row_loss)
            np.add.reduce(z, axis=1, out=row_max, keepdims=True)
            np.multiply(row_max, smoothing / classes, out=row_max)
            np.subtract(row_loss, row_max, out=row_loss)
        else:
            np.subtract(row_loss, chosen, out=row_loss)
        np.add.reduce(row_loss, axis=0, out=loss)
        np.divide(loss, samples, out=loss)

        # rank = classes - (those not greater) + (equal ones of a lower index)
        np.less_equal(z, chosen, out=flags)
        np.add.reduce(flags, axis=1, dtype=np.int64, out=rank)
        np.subtract(classes, rank, out=rank)
        np.equal(z, chosen, out=flags)
        np.less(before, label_column, out=other)
        np.logical_and(flags, other, out=flags)
        np.add.reduce(flags, axis=1, dtype=np.int64, out=equal)
        np.add(rank, equal, out=rank)
        for result, k in ((top1, 1), (top5, most)):
            np.less(rank, k, out=right)
            result[0] = np.count_nonzero(right)
        return total

    return labels, run


@kernel("softmax_ce_fwd")
def softmax_ce_fwd(node: BoundNode) -> Run:
    """Probabilities, mean loss, and counts of top-1 and top-5. probs may be the logits."""
    given, probs = Whole(node, "logits"), node.samples("probs")
    _, measure = _metrics(node, given.values, probs)

    def run() -> None:
        given.load()
        total = measure()
        np.exp(probs, out=probs)
        np.divide(probs, total, out=probs)

    return run


@kernel("softmax_ce_infer")
def softmax_ce_infer(node: BoundNode) -> Run:
    """The predicted class (the lowest index of the maximum), mean loss, and counts of top-1 and top-5."""
    given, predicted = Whole(node, "logits"), node.flat("predicted")
    logits = given.values
    _, measure = _metrics(node, logits, node.scratch(logits.shape))
    best = node.scratch((logits.shape[0],), np.intp)

    def run() -> None:
        given.load()
        np.argmax(logits, axis=1, out=best)
        np.copyto(predicted, best, casting="same_kind")
        measure()

    return run


@kernel("softmax_ce_bwd")
def softmax_ce_bwd(node: BoundNode) -> Run:
    """Compute dlogits = (probs - target) scaling / samples; dlogits may be probs."""
    probs, result = node.samples("probs"), Whole(node, "dlogits")
    dlogits = result.values
    samples, classes = probs.shape
    labels = _Labels(node, samples, classes)
    smoothing = _smoothing(node)
    scaling = node.scalar("scaling")
    chosen = node.scratch((samples,))
    flat = dlogits.reshape(-1)

    def run() -> None:
        labels.locate()
        np.subtract(probs, smoothing / classes, out=dlogits)
        np.take(flat, labels.place, out=chosen, mode="clip")
        np.subtract(chosen, 1 - smoothing, out=chosen)
        flat[labels.place] = chosen
        np.multiply(dlogits, float(scaling[0]) / samples, out=dlogits)
        result.store()

    return run
