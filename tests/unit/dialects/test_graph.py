"""graph: plain Python values in and out, and text that reads back to the same module."""

from __future__ import annotations

import random

import pytest
from xdsl.dialects.builtin import FloatAttr, ModuleOp, f32

from tests.unit.dialects.test_memplan import assert_round_trips, text_of
from trc.dialects.graph import (
    AtlasOp,
    BucketOp,
    ComputationOp,
    ComputeOp,
    RangeOp,
    StepOp,
    VariantOp,
)
from trc.dialects.parsing import parse_module
from trc_runtime.schema.graphs import GRAPH_STREAM, GraphId, ShapeId, StreamKind, Variant
from trc_runtime.schema.kinds import Access
from trc_runtime.schema.plan import Capture
from trc_runtime.schema.regions import Region


def module_of(*nodes: ComputeOp | RangeOp) -> ModuleOp:
    return ModuleOp([ComputationOp("train", [BucketOp(GraphId.DEEP_FWD_BWD, StreamKind.COMP_1, nodes)])])


def test_compute():
    op = ComputeOp(
        "dropout_fwd",
        reads=["x"],
        updates=["u"],
        writes=["y", "not a word"],
        scalars=["seed"],
        params={"p": 0.1, "stream": 7, "flag": True, "mode": 'a "b"', "odd name": -3},
        layer="dropout1",
        stream=StreamKind.COMP_3,
    )
    assert (op.kind_, op.layer_, op.stream_) == ("dropout_fwd", "dropout1", StreamKind.COMP_3)
    assert (op.reads_, op.updates_, op.writes_) == (("x",), ("u",), ("y", "not a word"))
    assert op.scalars_ == ("seed",)
    assert op.params_ == {"p": 0.1, "stream": 7, "flag": True, "mode": 'a "b"', "odd name": -3}
    assert [type(v) for v in op.params_.values()] == [float, int, bool, str, int]
    assert_round_trips(module_of(op))


def test_empty_node():
    op = ComputeOp("k")
    assert (op.reads_, op.scalars_, op.params_, op.layer_, op.stream_) == ((), (), {}, None, None)
    assert set(op.properties) == {"kind"}
    assert op.record_ is None
    assert_round_trips(module_of(op))


def test_range():
    span = (Region.G_BN_BIAS, Region.G_DEEP_CONV)
    op = RangeOp("check_nan", reads=[span, "t"], writes=["has_nan"])
    assert op.operand_refs(Access.READ) == (span, "t")
    assert_round_trips(module_of(op))


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, 1, True, False, 0, -5, 1e-5, -1e300, "", "x", 1 << 40])
def test_params_keep_type_and_value(value: object):
    op = ComputeOp("k", params={"a": value})  # pyright: ignore[reportArgumentType]
    (again,) = [n for n in parse_module(text_of(module_of(op))).walk() if isinstance(n, ComputeOp)]
    for node in (op, again):
        assert repr(node.params_["a"]) == repr(value)
        assert type(node.params_["a"]) is type(value)


def test_foreign_and_infinite_params_round_trip():
    op = ComputeOp("k", params={"a": float("inf"), "b": float("nan"), "c": 1.5})
    params = dict(op.params.data) if op.params is not None else {}
    op.properties["params"] = type(op.params)(params | {"d": FloatAttr(0.5, f32)})  # pyright: ignore[reportCallIssue]
    assert "d" not in op.params_
    text = text_of(module_of(op))
    assert text_of(parse_module(text)) == text


def test_buckets():
    computation = ComputationOp("train", [BucketOp(g) for g in GraphId])
    assert list(computation.buckets_) == list(GraphId)
    for graph_id, bucket in computation.buckets_.items():
        assert (bucket.id_, bucket.stream_, bucket.nodes_) == (graph_id, GRAPH_STREAM[graph_id], [])
    assert_round_trips(ModuleOp([computation]))


@pytest.mark.parametrize("stream", StreamKind)
def test_every_stream_round_trips(stream: StreamKind):
    assert_round_trips(ModuleOp([ComputationOp("c", [BucketOp(GraphId.ZERO_GRAD, stream, [ComputeOp("k")])])]))


def test_variant():
    op = VariantOp(Variant.VAL_LAST, "infer")
    assert (op.variant_, op.computation_) == (Variant.VAL_LAST, "infer")
    assert_round_trips(ModuleOp([op]))


@pytest.mark.parametrize("nodes", [0, 1, 15, 16, 17, 100])
def test_step(nodes: int):
    rng = random.Random(nodes)
    after = [sorted(rng.sample(range(n), min(n, rng.randrange(4)))) for n in range(nodes)]
    op = StepOp("train_a", "train", [0, 2], [GraphId.ZERO_GRAD, GraphId.OPTIMIZER], after)
    assert (op.name_, op.computation_, op.columns_) == ("train_a", "train", (0, 2))
    assert op.buckets_ == (GraphId.ZERO_GRAD, GraphId.OPTIMIZER)
    assert op.after_ == tuple(map(tuple, after))
    assert list(op.problems()) == []
    assert_round_trips(ModuleOp([op]))


def test_step_refuses_large_numbers():
    with pytest.raises(ValueError, match="32 bits"):
        StepOp("s", "train", [1 << 40], [], [])


def test_atlas():
    captures = (
        Capture("train", GraphId.DEEP_FWD_BWD, ShapeId(200, 28, 28, 1), 0),
        Capture("infer", GraphId.INF_MAIN_A, ShapeId(0, 0, 0, 0), 4),
        Capture("train", GraphId.ZERO_GRAD, ShapeId(0, 0, 0, 0), 0),
    )
    table = [[-1] * 33 for _ in range(6)]
    table[0][GraphId.DEEP_FWD_BWD.value] = 0
    table[4][GraphId.INF_MAIN_A.value] = 1
    table[3][GraphId.ZERO_GRAD.value] = 2
    op = AtlasOp(captures, table)
    assert op.captures_ == captures
    assert op.table_ == tuple(map(tuple, table))
    assert list(op.problems()) == []
    assert_round_trips(ModuleOp([op]))


def test_atlas_refuses_other_tables():
    with pytest.raises(ValueError, match="6 by 33"):
        AtlasOp([], [[-1] * 33] * 5)
    with pytest.raises(ValueError, match="6 by 33"):
        AtlasOp([], [[-1] * 32] * 6)
