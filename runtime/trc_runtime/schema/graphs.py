"""Graph ids, streams, the order of the buckets in a step, variants and shape ids."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import NamedTuple


class StreamKind(StrEnum):
    """The five streams of a device."""

    TRANS = "TRANS"
    COMP_1 = "COMP_1"
    COMP_2 = "COMP_2"
    COMP_3 = "COMP_3"
    UPDATE = "UPDATE"


class GraphId(Enum):
    """The 33 sub-graphs; the value is the published number (spec/compiler-facts.md section 8)."""

    TRANSFER_A = 0
    TRANSFER_B = 1
    FIRST_LAYER_FWD_A = 2
    FIRST_LAYER_FWD_B = 3
    DEEP_FWD_BWD = 4
    ZERO_GRAD = 5
    FIRST_LAYER_BWD_A = 6
    FIRST_LAYER_BWD_B = 7
    FIRST_COMM = 8
    DEEP_COMM = 9
    CAST_DEEP_GRAD_FP16_TO_FP32 = 10
    CAST_FIRST_GRAD_FP16_TO_FP32 = 11
    NAN_CHECK_AND_GRAD_SCALING = 12
    STATS_COMM = 13
    UPDATE_STATS = 14
    OPTIMIZER = 15
    EMA_UPDATE = 16
    INF_MAIN_A = 17
    INF_MAIN_B = 18
    INF_EMA_A = 19
    INF_EMA_B = 20
    CAST_MAIN_FP32_TO_FP16 = 21
    CAST_EMA_FP32_TO_FP16 = 22
    ACCUM_METRICS = 23
    ACCUM_METRICS_TRAIN_LAST = 24
    ACCUM_METRICS_VAL_LAST = 25
    VAL_RESULT_COMM = 26
    CLEAR_METRICS = 27
    SIMPLE_TASK_GRAPH = 28
    LARS_FC_OPT = 29
    LARS_FIRST_CONV_OPT = 30
    LARS_DEEP_CONV_OPT = 31
    UPDATE_BN_INF_PARAMS = 32


_ON_OTHER_STREAMS = {
    GraphId.TRANSFER_A: StreamKind.TRANS,
    GraphId.TRANSFER_B: StreamKind.TRANS,
    GraphId.FIRST_LAYER_FWD_A: StreamKind.COMP_1,
    GraphId.FIRST_LAYER_FWD_B: StreamKind.COMP_1,
    GraphId.DEEP_FWD_BWD: StreamKind.COMP_1,
    GraphId.FIRST_LAYER_BWD_A: StreamKind.COMP_1,
    GraphId.FIRST_LAYER_BWD_B: StreamKind.COMP_1,
    GraphId.INF_MAIN_A: StreamKind.COMP_1,
    GraphId.INF_MAIN_B: StreamKind.COMP_1,
    GraphId.INF_EMA_A: StreamKind.COMP_1,
    GraphId.INF_EMA_B: StreamKind.COMP_1,
    GraphId.CAST_EMA_FP32_TO_FP16: StreamKind.COMP_1,
    GraphId.SIMPLE_TASK_GRAPH: StreamKind.COMP_1,
    GraphId.LARS_FC_OPT: StreamKind.COMP_1,
    GraphId.LARS_FIRST_CONV_OPT: StreamKind.COMP_2,
    GraphId.LARS_DEEP_CONV_OPT: StreamKind.COMP_3,
}

GRAPH_STREAM: dict[GraphId, StreamKind] = {g: _ON_OTHER_STREAMS.get(g, StreamKind.UPDATE) for g in GraphId}
"""The stream on which each sub-graph is launched by default."""

PUBLISHED_SHAPE_DEPENDENT = frozenset(
    {
        GraphId.FIRST_LAYER_FWD_A,
        GraphId.FIRST_LAYER_FWD_B,
        GraphId.DEEP_FWD_BWD,
        GraphId.FIRST_LAYER_BWD_A,
        GraphId.FIRST_LAYER_BWD_B,
        GraphId.OPTIMIZER,
        GraphId.INF_MAIN_A,
        GraphId.INF_MAIN_B,
        GraphId.INF_EMA_A,
        GraphId.INF_EMA_B,
        GraphId.SIMPLE_TASK_GRAPH,
    }
)
"""The ids that the published table calls shape-dependent; trc computes this and compares."""

TRAIN_STEP_ORDER: tuple[GraphId, ...] = (
    GraphId.ZERO_GRAD,
    GraphId.FIRST_LAYER_FWD_A,
    GraphId.FIRST_LAYER_FWD_B,
    GraphId.DEEP_FWD_BWD,
    GraphId.FIRST_LAYER_BWD_A,
    GraphId.FIRST_LAYER_BWD_B,
    GraphId.CAST_DEEP_GRAD_FP16_TO_FP32,
    GraphId.DEEP_COMM,
    GraphId.CAST_FIRST_GRAD_FP16_TO_FP32,
    GraphId.FIRST_COMM,
    GraphId.NAN_CHECK_AND_GRAD_SCALING,
    # The original accumulates before it checks. Here a skipped step must leave the sums alone.
    GraphId.ACCUM_METRICS,
    GraphId.ACCUM_METRICS_TRAIN_LAST,
    GraphId.STATS_COMM,
    GraphId.UPDATE_STATS,
    GraphId.OPTIMIZER,
    GraphId.LARS_FC_OPT,
    GraphId.LARS_FIRST_CONV_OPT,
    GraphId.LARS_DEEP_CONV_OPT,
    GraphId.EMA_UPDATE,
    GraphId.CAST_MAIN_FP32_TO_FP16,
    # The original's list ends with CAST_EMA_FP32_TO_FP16. Only inference reads the average's half weights, so they are
    # made before a validation (step `cast_ema`), not after every training step.
)
"""The canonical order of the buckets in a training step (spec/compiler-facts.md section 10.4)."""

INFER_STEP_ORDER: tuple[GraphId, ...] = (
    GraphId.INF_MAIN_A,
    GraphId.INF_MAIN_B,
    GraphId.INF_EMA_A,
    GraphId.INF_EMA_B,
    GraphId.ACCUM_METRICS,
    GraphId.ACCUM_METRICS_VAL_LAST,
)
"""The canonical order of the buckets in a validation step."""


class Variant(Enum):
    """The six shape variants; the value is the column of the layout table."""

    TRAIN_BASE = 0
    TRAIN_LAST = 1
    TRAIN_LOWRES = 2
    TRAIN_LOWRES_LAST = 3
    VAL_BASE = 4
    VAL_LAST = 5

    @property
    def symbol(self) -> str:
        """The name in IR (`train_base`)."""
        return self.name.lower()

    @property
    def is_train(self) -> bool:
        """Whether the variant is used in training steps."""
        return self.value < 4


class ShapeId(NamedTuple):
    """Shape of a step's input, (0, 0, 0, 0) for graphs that do not depend on it."""

    n: int
    h: int
    w: int
    c: int


SHAPE_INVARIANT = ShapeId(0, 0, 0, 0)
"""The shape id of everything that does not depend on the input's shape."""
