"""The region table and the slot rule, against the published numbers (spec/compiler-facts.md sections 6, 7, 13.6)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trc_runtime.schema.dtypes import DType, Precision
from trc_runtime.schema.graphs import (
    GRAPH_STREAM,
    INFER_STEP_ORDER,
    PUBLISHED_SHAPE_DEPENDENT,
    TRAIN_STEP_ORDER,
    GraphId,
    StreamKind,
    Variant,
)
from trc_runtime.schema.regions import PUBLISHED_REGIONS, Region, dtype_of, region_range, slot_bytes


def test_published_ordinals() -> None:
    places = {
        "B_PREV_MEAN": 0,
        "W_DEEP_CONV": 11,
        "E_FC_WEIGHT_FP16": 18,
        "A_FC_WEIGHT": 21,
        "G_BN_BIAS": 24,
        "G_DEEP_CONV": 29,
        "R_RESULT": 30,
        "G_DEEP_CONV_FP16": 33,
        "V_DEEP_CONV": 45,
        "N_DEEP_CONV": 48,
        "I_B_DATA": 52,
        "F_GRAD_SLOT_FP16": 56,
        "S_MASK": 61,
        "R_RESULT_ACCUMULATED": 67,
    }
    for name, ordinal in places.items():
        assert Region[name].ordinal == ordinal
    assert [r.ordinal for r in Region] == list(range(len(Region)))
    assert len(Region) > PUBLISHED_REGIONS
    assert all(r.ordinal >= PUBLISHED_REGIONS for r in (Region.S_TABLE, Region.T_WORKSPACE, Region.E_STAT_MEAN))


@pytest.mark.parametrize(
    ("shape", "dtype", "region", "expected"),
    [
        ((1024, 1, 1, 784), DType.F32, Region.W_FC_WEIGHT, 3211776),
        ((200, 1, 1, 1024), DType.F32, Region.F_FEATURE_FP32, 819712),
        ((200, 28, 28, 1), DType.F16, Region.I_A_DATA, 1254656),
        ((200, 1, 1, 1), DType.I32, Region.I_A_LABEL, 1024),
        ((1, 1, 1, 1), DType.F32, Region.S_SCALAR_FP32, 512),
        ((1, 1, 1, 1), DType.I8, Region.S_SCALAR_INT8, 256),
    ],
)
def test_published_slots(shape: tuple[int, ...], dtype: DType, region: Region, expected: int) -> None:
    assert slot_bytes(shape, dtype, region) == expected


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4))
def test_wider_slots_are_exact_multiples(shape: list[int]) -> None:
    half = slot_bytes(shape, DType.F16, Region.A_FC_WEIGHT)
    assert slot_bytes(shape, DType.F32, Region.W_FC_WEIGHT) == 2 * half
    assert slot_bytes(shape, DType.F64, Region.W_FC_WEIGHT) == 4 * half
    assert half % 256 == 0


def test_half_features_pad_channels() -> None:
    assert slot_bytes((2, 3, 3, 5), DType.F16, Region.F_FEATURE_FP16) == slot_bytes(
        (2, 3, 3, 8), DType.F16, Region.F_FEATURE_FP16
    )


def test_dtypes_follow_the_precision() -> None:
    assert dtype_of(Region.W_FC_WEIGHT, Precision.FP64) is DType.F64
    assert dtype_of(Region.I_A_DATA, Precision.AMP_BF16) is DType.BF16
    assert dtype_of(Region.I_A_DATA, Precision.TF32) is DType.F32
    with pytest.raises(ValueError, match="mixed precision only"):
        dtype_of(Region.A_FC_WEIGHT, Precision.FP32)


def test_ranges() -> None:
    names = [r.name for r in region_range(Region.W_BN_BIAS, Region.W_FC_BIAS)]
    assert names == ["W_BN_BIAS", "W_BN_WEIGHT", "W_FC_BIAS"]
    with pytest.raises(ValueError, match="backwards"):
        region_range(Region.W_FC_BIAS, Region.W_BN_BIAS)


def test_graph_tables_are_complete() -> None:
    assert [g.value for g in GraphId] == list(range(33))
    assert set(GRAPH_STREAM) == set(GraphId)
    assert GRAPH_STREAM[GraphId.TRANSFER_A] is StreamKind.TRANS
    assert len(GraphId) - len(PUBLISHED_SHAPE_DEPENDENT) == 22
    assert TRAIN_STEP_ORDER.index(GraphId.NAN_CHECK_AND_GRAD_SCALING) < TRAIN_STEP_ORDER.index(GraphId.ACCUM_METRICS)
    assert set(INFER_STEP_ORDER).isdisjoint({GraphId.DEEP_FWD_BWD})
    assert [v.symbol for v in Variant if not v.is_train] == ["val_base", "val_last"]


def test_precision_spellings() -> None:
    assert Precision.from_text("amp_fp16") is Precision.from_text("amp-fp16") is Precision.AMP_FP16
    with pytest.raises(ValueError, match="choose one of fp32, tf32, amp-fp16"):
        Precision.from_text("fp8")
