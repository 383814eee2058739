"""From nodes to launches: layouts, errors, and whole compiled plans node by node against the CPU target."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.codegen.cuda.differential import ULP, tensors
from tests.unit.codegen.cuda.emulator import COMPILER, Emulator, check_launch
from tests.unit.codegen.cuda.products import products
from tests.unit.codegen.cuda.update_golden import plan_of
from trc.codegen.cuda.lowering import Lowered, lower, owns
from trc.codegen.cuda.lowering.matmul import TILES, tile_of
from trc.codegen.cuda.lowering.view import columns_first, rows_first
from trc.diagnostics import CompileError
from trc_runtime.cpu.session import CpuSession, bind_node
from trc_runtime.schema.plan import Plan, RangeRef, TensorRef
from trc_runtime.schema.regions import SLOT_ALIGNMENT, padded_elements, region_range


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
    from trc_runtime.schema.dtypes import DType

    wide = tuple(replace(t, dtype=DType.F64) for t in plan.tensors)
    with pytest.raises(CompileError, match="f64, which exists on the CPU only"):
        lower(replace(plan, tensors=wide), 0, 0)


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

STEPS = (("transfer_a", 0), ("train_a", 0), ("fold_bn", 0), ("transfer_a", 4), ("infer_a", 4))


def run_plan(plan: Plan) -> int:
    """Run a training and an inference step on the CPU target, and each node of ours in the emulator from the same
    bytes. Returns how many were compared."""
    session = CpuSession(plan)
    session.initialise()
    for span in plan.spans:
        if span.name == "POOL":
            session.arena[span.offset : span.offset + span.bytes] = 0xFF  # what nobody wrote is NaN
    rng = np.random.default_rng(3)
    names = {s.name: s for s in plan.steps}
    chosen = [(names[s], c) for s, c in STEPS if s in names]
    cast = [(names["cast_main"], 0)] if "cast_main" in names else []
    lowered: dict[tuple[int, int], Lowered] = {}
    for step, column in (*cast, *chosen):
        lowered |= {(n, column): lower(plan, n, column) for n in step.nodes if owns(plan, n, column)}
    emulator = Emulator({i.name: i for x in lowered.values() for i in (launch.instance for launch in x.launches)})
    compared = 0
    for step, column in (*cast, *chosen):
        if step.name == "transfer_a":
            labels, images = session.staging("A", column)
            labels[...] = rng.integers(0, plan.config.num_classes, labels.shape)
            images[...] = rng.standard_normal(images.shape).astype(images.dtype)
        for n in step.nodes:
            before = session.arena.copy()
            bind_node(plan.nodes[n], column, session._memory)()
            if (n, column) in lowered:
                _compare(plan, n, column, lowered[n, column], emulator, before, session.arena)
                compared += 1
    return compared


def _compare(
    plan: Plan, n: int, column: int, lowered: Lowered, emulator: Emulator, before: np.ndarray, after: np.ndarray
) -> None:
    raw = np.empty(before.size + 512, np.uint8)
    start = -raw.ctypes.data % 256
    arena = raw[start : start + before.size]
    arena[:] = before
    scratch = np.full(lowered.scratch + 512, 0xFF, np.uint8)
    scratch = scratch[-scratch.ctypes.data % 256 :]
    for launch in lowered.launches:
        check_launch(launch)
    emulator.run(lowered.launches, arena, scratch)
    node = plan.nodes[n]
    mine = np.zeros(before.size, bool)
    for operand in node.operands:
        if not operand.access.writes:
            continue
        if isinstance(operand.ref, RangeRef):
            regions = set(region_range(operand.ref.first, operand.ref.last))
            spans = [s for s in plan.spans if s.name in {r.name for r in regions}]
            for span in spans:
                mine[span.offset : span.offset + span.bytes] = True
            written = [t for t in plan.tensors if t.region in regions]
        else:
            assert isinstance(operand.ref, TensorRef)
            written = [plan.tensors[operand.ref.tensor]]
        for tensor in written:
            shape = tensor.shapes[column]
            if shape is None:
                continue
            size = padded_elements(shape, tensor.dtype, tensor.region) * tensor.dtype.itemsize
            mine[tensor.offset : tensor.offset + size] = True
            got, want = (
                _numbers(a[tensor.offset : tensor.offset + size], tensor.dtype.value).reshape(*shape[:-1], -1)
                for a in (arena, after)
            )
            got, want = got[..., : shape[-1]], want[..., : shape[-1]]
            what = f"{node.kind} of {node.layer}: {tensor.name}"
            assert np.isfinite(want).all(), f"{what}: the CPU's result is not finite"
            ulp = ULP.get(tensor.dtype, 0.0)
            # sums of gradients cancel: the bound is of the size of their terms
            slack = 1e-4 * float(np.abs(want).max(initial=0)) * (1 if ulp else 0)
            np.testing.assert_allclose(got, want, rtol=8 * ulp, atol=slack, err_msg=what)
    assert (arena == before)[~mine].all(), f"{node.kind} of {node.layer} writes outside its results"


def _numbers(raw: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bf16":
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    kinds = {"f16": np.float16, "f32": np.float32, "i32": np.int32, "i8": np.int8}
    return raw.view(kinds[dtype]).astype(np.float64)


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize("precision", ["amp-fp16", "fp32"])
def test_lenet_node_by_node(precision: str) -> None:
    assert run_plan(plan_of("lenet5", precision, batch=5, val_batch=3)) > 25


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
def test_mlp_node_by_node() -> None:
    assert run_plan(plan_of("mlp", "amp-bf16", batch=20, val_batch=3)) > 25


@pytest.mark.accept
@pytest.mark.skipif(COMPILER is None, reason="needs g++")
@pytest.mark.parametrize(("model", "precision"), [("resnet18", "amp-fp16"), ("mobilenet_v2", "amp-bf16")])
def test_deep_nets_node_by_node(model: str, precision: str) -> None:
    plan = plan_of(model, precision, batch=3, val_batch=2, input=(64, 64, 3))
    assert run_plan(plan) > 100
