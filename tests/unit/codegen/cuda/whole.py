"""Whole compiled plans on the CPU target, with each node that is ours through the emulated kernels besides."""

from __future__ import annotations

import numpy as np

from tests.unit.codegen.cuda.differential import ULP
from tests.unit.codegen.cuda.emulator import Emulator, check_launch
from trc.codegen.cuda.lowering import Lowered, lower, owns
from trc_runtime.cpu.session import CpuSession, bind_node
from trc_runtime.schema.plan import Plan, RangeRef, Step, TensorRef
from trc_runtime.schema.regions import padded_elements, region_range

STEPS = (
    *(("cast_main", 0), ("transfer_a", 0), ("train_a", 0), ("fold_bn", 0), ("cast_ema", 0)),
    *(("transfer_a", 4), ("infer_a", 4), ("infer_ema_a", 4)),
)

Lowerings = dict[tuple[int, int], Lowered]
"""By node and column."""


def steps_of(plan: Plan) -> list[tuple[Step, int]]:
    """The cast of the weights where there is one, then training and inference, each with its column."""
    names = {s.name: s for s in plan.steps}
    return [(names[s], c) for s, c in STEPS if s in names]


def lower_steps(plan: Plan) -> Lowerings:
    """The nodes of those steps that are ours."""
    nodes = ((n, column) for step, column in steps_of(plan) for n in step.nodes)
    return {(n, column): lower(plan, n, column) for n, column in nodes if owns(plan, n, column)}


def emulator_of(*lowerings: Lowerings) -> Emulator:
    """The kernels of plans, compiled at once."""
    launches = (launch for lowered in lowerings for x in lowered.values() for launch in x.launches)
    return Emulator({launch.instance.name: launch.instance for launch in launches})


def run_plan(plan: Plan, lowered: Lowerings | None = None, emulator: Emulator | None = None) -> int:
    """Run a training and an inference step on the CPU target, and each node of ours in the emulator from the same
    bytes. Returns how many were compared."""
    lowered = lower_steps(plan) if lowered is None else lowered
    emulator = emulator_of(lowered) if emulator is None else emulator
    session = CpuSession(plan)
    session.initialise()
    for span in plan.spans:
        if span.name == "POOL":
            session.arena[span.offset : span.offset + span.bytes] = 0xFF  # what nobody wrote is NaN
    rng = np.random.default_rng(3)
    compared = 0
    for step, column in steps_of(plan):
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
