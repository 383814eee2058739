"""Which steps exist: named sequences of buckets, and the columns they run in."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from trc.layers.descriptor import ALL_COLUMNS, INFER_COLUMNS
from trc_runtime.schema.graphs import INFER_STEP_ORDER, TRAIN_STEP_ORDER, GraphId, Variant


@dataclass(frozen=True)
class StepPlan:
    """A step before its nodes are ordered."""

    name: str
    computation: str
    columns: tuple[int, ...]
    buckets: tuple[GraphId, ...]


_BASE = Variant.TRAIN_BASE.value, Variant.TRAIN_LOWRES.value
_LAST = Variant.TRAIN_LAST.value, Variant.TRAIN_LOWRES_LAST.value
_EMA = GraphId.INF_EMA_A, GraphId.INF_EMA_B
"""They accumulate in sums of their own, and run as steps of their own on the batch that the weights were tried on."""


def plan_steps(computations: Mapping[str, Collection[GraphId]]) -> Iterator[StepPlan]:
    """All steps of a network whose computations hold these buckets."""
    train, infer = computations["train"], computations["infer"]
    for letter in "AB":
        yield StepPlan(f"transfer_{letter.lower()}", "train", ALL_COLUMNS, (GraphId[f"TRANSFER_{letter}"],))
    for name, columns, accumulate in (
        ("train", _BASE, GraphId.ACCUM_METRICS),
        ("train_last", _LAST, GraphId.ACCUM_METRICS_TRAIN_LAST),
    ):
        for letter in "AB":
            buckets = tuple(g for g in TRAIN_STEP_ORDER if g in train and _belongs(g, letter, accumulate))
            yield StepPlan(f"{name}_{letter.lower()}", "train", columns, buckets)
    for name, column, accumulate in (
        ("infer", Variant.VAL_BASE.value, GraphId.ACCUM_METRICS),
        ("infer_last", Variant.VAL_LAST.value, GraphId.ACCUM_METRICS_VAL_LAST),
    ):
        for letter in "AB":
            wanted = (g for g in INFER_STEP_ORDER if g in infer and _belongs(g, letter, accumulate))
            buckets = tuple(g for g in wanted if g not in _EMA)
            yield StepPlan(f"{name}_{letter.lower()}", "infer", (column,), buckets)
    for name, column in (("infer_ema", Variant.VAL_BASE.value), ("infer_ema_last", Variant.VAL_LAST.value)):
        for letter in "AB":
            if (graph_id := GraphId[f"INF_EMA_{letter}"]) in infer:
                yield StepPlan(f"{name}_{letter.lower()}", "infer", (column,), (graph_id,))
    for name, graph_id in (
        ("clear_metrics", GraphId.CLEAR_METRICS),
        ("fold_bn", GraphId.UPDATE_BN_INF_PARAMS),
        ("cast_main", GraphId.CAST_MAIN_FP32_TO_FP16),
        ("cast_ema", GraphId.CAST_EMA_FP32_TO_FP16),
    ):
        if graph_id in train:
            yield StepPlan(name, "train", ALL_COLUMNS, (graph_id,))
    if GraphId.VAL_RESULT_COMM in infer:
        yield StepPlan("reduce_metrics", "infer", INFER_COLUMNS, (GraphId.VAL_RESULT_COMM,))


def _belongs(graph_id: GraphId, letter: str, accumulate: GraphId) -> bool:
    """Whether a bucket is for this input buffer and this way of counting samples."""
    if graph_id.name.startswith("ACCUM_METRICS"):
        return graph_id is accumulate
    return not graph_id.name.endswith(("_A", "_B")) or graph_id.name.endswith(f"_{letter}")
