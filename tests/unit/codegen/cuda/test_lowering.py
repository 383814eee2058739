"""From nodes to launches: layouts, errors, and whole compiled plans node by node against the CPU target."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import trc
from tests.unit.codegen.cuda.differential import tensors
from tests.unit.codegen.cuda.emulator import COMPILER
from tests.unit.codegen.cuda.pixels import pixels
from tests.unit.codegen.cuda.products import products
from tests.unit.codegen.cuda.update_golden import plan_of
from tests.unit.codegen.cuda.whole import run_plan
from trc.codegen.cuda.lowering import N, NodeView, lower, owns, view
from trc.codegen.cuda.lowering.matmul import TILES, tile_of
from trc.codegen.cuda.lowering.view import columns_first, rows_first
from trc.diagnostics import CompileError
from trc_runtime.schema.dtypes import DType
from trc_runtime.schema.plan import Plan
from trc_runtime.schema.regions import SLOT_ALIGNMENT, Region


@pytest.mark.parametrize("groups", [1, 2, 3, 8, 9, 12, 16, 18, 20, 24, 40, 72, 120, 160, 256, 257, 512, 1000])
def test_blocks_cover_all_channels(groups: int) -> None:
    for block in (rows_first(groups), columns_first(groups)):
        assert block.wide * block.chunks >= groups > block.wide * (block.chunks - 1)
        assert 0 < block.threads <= 256 or block.tall == 1
    assert columns_first(groups).tall >= 8, "fold_rows needs a thread a column"


def test_scratch_is_aligned_and_counted() -> None:
    x = np.zeros((4, 6, 6, 16), np.float32)
    one = (1, 1, 1, 16)
    case = tensors("stats", "bn_stats", {"x": x}, {"sum": one, "sumsq": one}, "fp16")
    assert case.lowered.scratch > 0
    assert case.lowered.scratch % SLOT_ALIGNMENT == 0


def test_unknown_kind_names_the_layer() -> None:
    case = tensors("relu", "relu_fwd", {"x": np.zeros((1, 1, 1, 8), np.float32)}, {"y": (1, 1, 1, 8)})
    node = replace(case.plan.nodes[0], kind="nonsense")
    with pytest.raises(CompileError, match=r"layer 'layer1'.*nonsense.*no kernel"):
        lower(replace(case.plan, nodes=(node,)), 0, 0)


def test_float64_is_refused() -> None:
    plan = tensors("relu", "relu_fwd", {"x": np.zeros((1, 1, 1, 8), np.float32)}, {"y": (1, 1, 1, 8)}).plan
    wide = tuple(replace(t, dtype=DType.F64) for t in plan.tensors)
    with pytest.raises(CompileError, match="f64, which exists on the CPU only"):
        lower(replace(plan, tensors=wide), 0, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": {"region": Region.T_TEMP_INT32, "dtype": DType.I32}}, "unsigned bytes to numbers, not i32 to f32"),
        ({"y": {"dtype": DType.I32}}, "unsigned bytes to numbers, not u8 to i32"),
        ({"y": {"shapes": ((7, 5, 4, 3),) * 6}}, r"'x' has the shape \(7, 5, 3, 3\), 'y' \(7, 5, 4, 3\)"),
        ({"y": {"shapes": ((7, 5, 3, 2),) * 6}}, r"'x' has the shape \(7, 5, 3, 3\), 'y' \(7, 5, 3, 2\)"),
        ({"shift": {"shapes": ((1, 1, 1, 2),) * 6}}, "has 2 numbers of shift for 3 channels"),
    ],
)
def test_bytes_that_cannot_be_normalised(change: dict[str, dict[str, Any]], message: str) -> None:
    plan = next(c for c in pixels() if c.name == "7x5x3x3-to-3-fp32").plan
    wrong = tuple(replace(t, **change.get(t.name, {})) for t in plan.tensors)
    with pytest.raises(CompileError, match=f"kind normalise_input on target cuda: .*{message}"):
        lower(replace(plan, tensors=wrong), 0, 0)


def test_rows_of_different_length_are_refused_where_kernels_know_one(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.zeros((2, 4, 4, 3), np.float32)
    plan = tensors("pool", "gap_fwd", {"x": x}, {"y": (2, 1, 1, 3)}, "fp16", regions={"x": Region.I_A_DATA}).plan
    monkeypatch.setattr(view, "_ANY_PITCH", set())
    with pytest.raises(CompileError, match=r"layer 'layer1': .*rows of 'x' are 4 elements long .* rows of 'y' 8, but"):
        lower(plan, 0, 0)


def test_counts_beyond_32_bits_are_refused() -> None:
    plan = tensors("pool", "gap_fwd", {"x": np.zeros((1, 2, 2, 4), np.float32)}, {"y": (1, 1, 1, 4)}).plan
    wide = tuple(replace(t, shapes=((1, 1 << 16, 1 << 15, 4),)) if t.name == "x" else t for t in plan.tensors)
    with pytest.raises(CompileError, match="a map of 'x' has 2147483648 cells, more than 1073741824"):
        lower(replace(plan, tensors=wide), 0, 0)
    with pytest.raises(CompileError, match="kernel k counts with 32 bits, and its argument 'int n' is 2147483648"):
        NodeView(plan, 0, 0).launch("k", "pool", "f(n)", [("int n", N(1 << 31))], (1, 1, 1), 32)


def test_plain_convolutions_are_not_ours() -> None:
    plan = plan_of("lenet5")
    kinds = {plan.nodes[n].kind for n in range(len(plan.nodes)) if owns(plan, n, _column(plan, n))}
    assert not any(k.startswith(("conv_fwd", "conv_bwd_data", "conv_bwd_weight")) for k in kinds)


def test_small_half_products_are_ours() -> None:
    def ours(precision: str, **options: object) -> set[str]:
        plan = plan_of("mlp", precision, **options)
        kinds = {plan.nodes[n].kind for n in range(len(plan.nodes)) if owns(plan, n, _column(plan, n))}
        return kinds & {"fc_fwd", "fc_bwd_data", "fc_bwd_weight"}

    assert ours("amp-fp16") == ours("amp-bf16") == {"fc_fwd", "fc_bwd_data", "fc_bwd_weight"}
    assert ours("fp32") == ours("tf32") == set()


@pytest.mark.parametrize("m", [1, 10, 200, 1024])
@pytest.mark.parametrize("n", [16, 256, 1000])
@pytest.mark.parametrize("k", [5, 200, 784, 4096])
def test_tiles_fit(m: int, n: int, k: int) -> None:
    tile = tile_of(m, n, k)
    assert tile.k % (16 * tile.splits) == 0
    assert tile.stages >= 2
    assert tile.stages * (tile.m + tile.n) * tile.k * 2 <= 48 << 10
    assert tile.splits * tile.m * (tile.n + 8) * 4 <= 48 << 10
    assert 32 <= tile.threads <= 256


def test_cases_of_products_have_every_tile() -> None:
    names = {launch.instance.name for case in products() for launch in case.lowered.launches}
    for m, n in TILES:
        assert any(f"_t{m}x{n}x" in name for name in names), f"no case with a tile of {m} x {n}"


def _column(plan: Plan, index: int) -> int:
    node = plan.nodes[index]
    return next(c.column for c in plan.captures if (c.computation, c.bucket) == (node.computation, node.bucket))


# ---------------------------------------------------------------- whole plans


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("precision", ["amp-fp16", "fp32"])
def test_lenet_node_by_node(precision: str) -> None:
    assert run_plan(plan_of("lenet5", precision, batch=5, val_batch=3)) > 25


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize(("precision", "warmup"), [("amp-fp16", False), ("fp32", True)])
def test_a_moving_average_node_by_node(precision: str, warmup: bool) -> None:
    plan = plan_of("lenet5", precision, batch=5, val_batch=3, ema=trc.EMA(0.9, warmup))
    assert run_plan(plan) > run_plan(plan_of("lenet5", precision, batch=5, val_batch=3)) + 5


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
def test_mlp_node_by_node() -> None:
    assert run_plan(plan_of("mlp", "amp-bf16", batch=20, val_batch=3)) > 25


@pytest.mark.accept
@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize(("model", "precision"), [("resnet18", "amp-fp16"), ("mobilenet_v2", "amp-bf16")])
def test_deep_nets_node_by_node(model: str, precision: str) -> None:
    plan = plan_of(model, precision, batch=3, val_batch=2, input=(64, 64, 3))
    assert run_plan(plan) > 100
