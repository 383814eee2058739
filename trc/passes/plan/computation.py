"""The nodes of the two computations, from the layers' descriptors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trc.layers.ema import ACCUMULATE_BATCH, EMA_UPDATE
from trc.layers.optimizer import (
    ADAM_UPDATE,
    BIAS_CORRECTION,
    COUNT_STEP,
    FETCH_RATE,
    MOMENTUM_UPDATE,
    SGD_UPDATE,
)
from trc.layers.system import (
    ACCUMULATE_METRICS,
    CAST_RANGE,
    CHECK_NAN,
    CLEAR,
    COMMIT_STATS,
    H2D_COPY,
    MEAN_ALLREDUCE,
    NORMALISE_INPUT,
    SCALE_UPDATE,
)
from trc.passes.plan.baseline import EMA_SUMS, INPUT_TABLES, SUMS
from trc.passes.plan.network import Network
from trc.passes.plan.nodes import Bucket, Buckets
from trc.passes.plan.settings import OptimizerSettings
from trc.passes.plan.trace import Trace
from trc_runtime.schema.config import EMA
from trc_runtime.schema.graphs import GraphId
from trc_runtime.schema.regions import AVERAGES, Region, region_range

Range = tuple[Region, Region]

_RESULTS = ("loss", "top1", "top5")
_HALF_GRADIENTS = {
    GraphId.CAST_DEEP_GRAD_FP16_TO_FP32: Region.G_DEEP_CONV_FP16,
    GraphId.CAST_FIRST_GRAD_FP16_TO_FP32: Region.G_FIRST_CONV_FP16,
}
_WEIGHTS = ("FC_WEIGHT", "DEEP_CONV")
_BIASES = ("BN_BIAS", "FC_BIAS")
_GRADIENTS: Range = (Region.G_BN_BIAS, Region.G_DEEP_CONV)
_METRICS: Range = (Region.R_RESULT_ACCUMULATED, Region.R_RESULT_ACCUMULATED)
_NEXT: Range = (Region.B_NEXT_MEAN, Region.B_NEXT_VAR)
_PREV: Range = (Region.B_PREV_MEAN, Region.B_PREV_VAR)
_AVERAGED: tuple[Range, ...] = (Region.W_BN_BIAS, Region.W_DEEP_CONV), _PREV
"""What is averaged."""


class Filled:
    """Which regions hold tensors: a range node stands only where its range does."""

    def __init__(self, regions: Sequence[Region]) -> None:
        self._regions = frozenset(regions)

    def __contains__(self, span: Range) -> bool:
        return not self._regions.isdisjoint(region_range(*span))


@dataclass(frozen=True)
class Average:
    """The moving average to build: its settings, and the tensors that have a counterpart in it."""

    ema: EMA
    names: frozenset[str]


def build_train(
    network: Network, settings: OptimizerSettings, filled: Filled, world_size: int, average: Average | None = None
) -> Buckets:
    """Forward, backward and everything a training step does besides."""
    trace = Trace(network)
    buckets = trace.buckets
    for letter in "AB":
        _transfer(buckets[GraphId[f"TRANSFER_{letter}"]], letter, filled)
    trace.forward()
    trace.backward()
    if (span := (Region.G_BN_BIAS, Region.G_DEEP_CONV_FP16)) in filled:
        buckets[GraphId.ZERO_GRAD].emit(CLEAR, writes=[span])
    for graph_id, region in _HALF_GRADIENTS.items():
        if (region, region) in filled:
            target = Region[region.name.removesuffix("_FP16")]
            buckets[graph_id].emit(CAST_RANGE, reads=[(region, region)], writes=[(target, target)])
    if world_size > 1:
        _communicate(buckets, filled)
    if _GRADIENTS in filled:
        buckets[GraphId.NAN_CHECK_AND_GRAD_SCALING].emit(CHECK_NAN, reads=[_GRADIENTS], writes=["has_nan"])
    if _NEXT in filled:
        buckets[GraphId.UPDATE_STATS].emit(COMMIT_STATS, reads=[_NEXT], updates=[_PREV], scalars=["has_nan"])
    _accumulate(buckets[GraphId.ACCUM_METRICS], "batch_size", "has_nan")
    _accumulate(buckets[GraphId.ACCUM_METRICS_TRAIN_LAST], "last_train_batch_size", "has_nan")
    _optimize(buckets[GraphId.OPTIMIZER], settings, filled, network.precision.is_amp)
    weights = _span("W", _WEIGHTS)
    if network.precision.is_amp and weights in filled:
        cast = buckets[GraphId.CAST_MAIN_FP32_TO_FP16]
        cast.emit(CAST_RANGE, reads=[weights], writes=[_span("A", _WEIGHTS)])
    buckets[GraphId.CLEAR_METRICS].emit(CLEAR, writes=[_METRICS])
    trace.fold()
    if average is not None:
        _average(buckets, average.ema, filled, network.precision.is_amp)
        trace.fold(average.names)
    return buckets


def _transfer(bucket: Bucket, letter: str, filled: Filled) -> None:
    """Labels and images from the host; images that come as bytes are normalised behind the copy."""
    label, data, pixels = (Region[f"I_{letter}_{part}"] for part in ("LABEL", "DATA", "BYTES"))
    params = {"buffer": letter}
    if (pixels, pixels) not in filled:
        bucket.emit(H2D_COPY, writes=[(label, data)], params=params)
        return
    bucket.emit(H2D_COPY, writes=[(label, label)], params=params)
    bucket.emit(H2D_COPY, writes=[(pixels, pixels)], params=params)
    small = letter.lower()
    bucket.emit(NORMALISE_INPUT, reads=[f"bytes_{small}"], writes=[f"data_{small}"], scalars=INPUT_TABLES)


def build_infer(network: Network, world_size: int, average: Average | None = None) -> Buckets:
    """Inference and its metrics, and that of the moving average."""
    trace = Trace(network)
    buckets = trace.buckets
    for letter in "AB":
        trace.inference(letter)
        if average is not None:
            # Sums of its own, in its own bucket: which of the two ACCUM_METRICS runs is said by the other inference.
            bucket = trace.inference(letter, average.names)
            bucket.emit(ACCUMULATE_BATCH, reads=[*_RESULTS, "label"], updates=EMA_SUMS)
    _accumulate(buckets[GraphId.ACCUM_METRICS], "val_batch_size", "zero_flag")
    _accumulate(buckets[GraphId.ACCUM_METRICS_VAL_LAST], "last_val_batch_size", "zero_flag")
    if world_size > 1:
        buckets[GraphId.VAL_RESULT_COMM].emit(MEAN_ALLREDUCE, updates=[_METRICS])
    return buckets


def _communicate(buckets: Buckets, filled: Filled) -> None:
    """The mean over the ranks of gradients and results, and of batch norm's statistics."""
    spans = {
        GraphId.FIRST_COMM: (Region.G_BN_BIAS, Region.G_FIRST_CONV),
        GraphId.DEEP_COMM: (Region.G_DEEP_CONV, Region.R_RESULT),
        GraphId.STATS_COMM: _NEXT,
    }
    for graph_id, span in spans.items():
        if span in filled:
            buckets[graph_id].emit(MEAN_ALLREDUCE, updates=[span])


def _accumulate(bucket: Bucket, batch_size: str, skip: str) -> None:
    bucket.emit(ACCUMULATE_METRICS, reads=_RESULTS, updates=SUMS, scalars=[batch_size, skip])


def _optimize(bucket: Bucket, settings: OptimizerSettings, filled: Filled, amp: bool) -> None:
    """Rate, updates of weights and of bias-like parameters, loss scale, counters."""
    bucket.emit(FETCH_RATE, writes=["lr"], scalars=["lr_table", "iteration"])
    if settings.adam:
        bucket.emit(
            BIAS_CORRECTION,
            writes=["bias_correction1", "bias_correction2"],
            scalars=["beta1", "beta2", "applied"],
        )
    kind = ADAM_UPDATE if settings.adam else MOMENTUM_UPDATE if settings.momentum else SGD_UPDATE
    params = {"nesterov": settings.nesterov} if settings.momentum else {}
    for names, decay in ((_WEIGHTS, settings.decay), (_BIASES, "none")):
        if _span("W", names) not in filled:
            continue
        bucket.emit(
            kind,
            reads=[_span("G", names)],
            updates=[_span(letter, names) for letter in ("W", *(m.upper() for m in settings.moments))],
            scalars=kind.scalars,
            params={**params, "decay": decay},
        )
    if amp:
        # After the updates: they divide by the scale that the gradients were made with.
        bucket.emit(SCALE_UPDATE, updates=["scaling", "growth_counter"], scalars=["has_nan"])
    bucket.emit(COUNT_STEP, updates=["iteration", "applied"], scalars=["has_nan"])


def _average(buckets: Buckets, ema: EMA, filled: Filled, amp: bool) -> None:
    """The step of the moving average, after the counters: `applied` counts this step already."""
    for source in _AVERAGED:
        if source in filled:
            buckets[GraphId.EMA_UPDATE].emit(
                EMA_UPDATE,
                reads=[source],
                updates=[_averages(source)],
                scalars=["ema_alpha", "applied", "has_nan"],
                params={"warmup": ema.warmup},
            )
    if amp and _span("W", _WEIGHTS) in filled:
        reads, writes = (_averages(_span(letter, _WEIGHTS)) for letter in ("W", "A"))
        buckets[GraphId.CAST_EMA_FP32_TO_FP16].emit(CAST_RANGE, reads=[reads], writes=[writes])


def _averages(span: Range) -> Range:
    """Where the averages of a range lie."""
    first, last = span
    return AVERAGES[first], AVERAGES[last]


def _span(letter: str, names: tuple[str, str]) -> Range:
    """The same parameters' range of weights (W), gradients (G), moments (M, V) or half weights (A)."""
    return Region[f"{letter}_{names[0]}"], Region[f"{letter}_{names[1]}"]
