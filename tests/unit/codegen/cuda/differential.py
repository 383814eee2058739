"""One node on the CPU target and through the emulated kernels, from the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.unit.codegen.cuda.emulator import Emulator
from tests.unit.runtime.cpu.plans import HALVES, MASTER, PACKED_HALF, PlanBuilder, Shape
from trc.codegen.cuda.lowering import Lowered, lower
from trc_runtime.cpu.session import CpuSession
from trc_runtime.schema.dtypes import DType, Precision
from trc_runtime.schema.graphs import GraphId
from trc_runtime.schema.kinds import Access
from trc_runtime.schema.plan import Plan, RangeRef, TensorRef
from trc_runtime.schema.regions import Region, channel_alignment, padded_elements, region_range

ULP = {DType.F16: 2.0**-10, DType.BF16: 2.0**-7, DType.F32: 2.0**-22}
"""Spacing of numbers relative to them, at most (float32 with room for another order of sums)."""


@dataclass
class Case:
    """A plan of one node, and what its tensors hold before."""

    name: str
    plan: Plan
    values: Mapping[str, np.ndarray]
    ulps: float
    absolute: float
    lowered: Lowered = field(init=False)

    def __post_init__(self) -> None:
        self.lowered = lower(self.plan, 0, 0)


def tensors(
    name: str,
    kind: str,
    inputs: Mapping[str, np.ndarray],
    outputs: Mapping[str, Shape],
    dtype: str = "fp32",
    scalars: Mapping[str, float | int | Sequence[int]] | None = None,
    updates: Mapping[str, np.ndarray] | None = None,
    alias: Mapping[str, str] | None = None,
    regions: Mapping[str, Region] | None = None,
    master: Sequence[str] = (),
    ulps: float = 1.0,
    absolute: float = 0.0,
    **params: Any,
) -> Case:
    """A case of whole tensors; regions as `tests.unit.runtime.cpu.plans.run_kernel` chooses them."""
    precision = HALVES.get(dtype, Precision.FP32)
    b = PlanBuilder(precision=precision, alias=dict(alias or {}))

    def region(role: str, array: np.ndarray | None) -> Region:
        if regions and role in regions:
            return regions[role]
        if role == "mask":
            return Region.S_MASK
        if role == "predicted" or (array is not None and array.dtype.kind == "i"):
            return Region.T_TEMP_INT32
        if precision.is_amp and role not in (*MASTER, *master):
            return Region.T_TEMP_FP16 if role in PACKED_HALF else Region.F_FEATURE_FP16
        return Region.T_TEMP_FP32 if precision.is_amp else Region.F_FEATURE_FP32

    values: dict[str, np.ndarray] = {**inputs, **(updates or {})}
    for role, array in values.items():
        b.tensor(role, region(role, array), array.shape)
    for role, shape in outputs.items():
        b.tensor(role, region(role, None), shape)
    for role, value in (scalars or {}).items():
        if isinstance(value, Sequence):
            b.tensor(role, Region.S_SCALAR_INT32, (1, 1, 1, len(value)))
        else:
            b.scalar(role, value)
        values[role] = np.reshape(value, (1, 1, 1, -1))
    b.node(
        kind,
        reads={n: n for n in inputs},
        updates={n: n for n in updates or {}},
        writes={n: n for n in outputs},
        scalars={n: n for n in scalars or {}},
        layer="layer1",
        **params,
    )
    b.step("step", [0], [GraphId.DEEP_FWD_BWD])
    return Case(f"{name}-{dtype}", b.build(), values, ulps, absolute)


def ranges(name: str, build: Callable[[PlanBuilder], Mapping[str, np.ndarray]], dtype: str = "fp32", **kw: Any) -> Case:
    """A case whose node `build` makes itself."""
    b = PlanBuilder(precision=HALVES.get(dtype, Precision.FP32))
    values = build(b)
    b.step("step", [0], [GraphId.DEEP_FWD_BWD])
    return Case(f"{name}-{dtype}", b.build(), values, kw.get("ulps", 1.0), kw.get("absolute", 0.0))


def written(plan: Plan) -> list[int]:
    """The tensors that the node writes."""
    found: list[int] = []
    for operand in plan.nodes[0].operands:
        if operand.access is Access.READ:
            continue
        if isinstance(operand.ref, TensorRef):
            found.append(operand.ref.tensor)
        elif isinstance(operand.ref, RangeRef):
            regions = set(region_range(operand.ref.first, operand.ref.last))
            found += [n for n, t in enumerate(plan.tensors) if t.region in regions]
    return list(dict.fromkeys(found))


def compare(case: Case, emulator: Emulator) -> None:
    """Run both and compare what the node writes; everything else must stay as it was."""
    plan = case.plan
    session = CpuSession(plan)
    session.arena[:] = 0xFF  # NaN, or -1
    for span in plan.spans:
        if _in_range(plan, span.name):
            session.arena[span.offset : span.offset + span.bytes] = 0  # state, gaps included, is zeroed once
    for name, value in case.values.items():
        session.write(name, value)
    before = session.arena.copy()
    arena = _aligned(before)
    scratch = _aligned(np.full(case.lowered.scratch + 256, 0xFF, np.uint8))
    emulator.run(case.lowered.launches, arena, scratch)
    assert (scratch[case.lowered.scratch :] == 0xFF).all(), "writes behind its scratch memory"
    session.run("step", 0)
    expected = {n: session.read(plan.tensors[n].name) for n in written(plan)}
    mine = np.zeros(before.size, bool)
    session.arena[:] = arena
    for n, want in expected.items():
        tensor = plan.tensors[n]
        got = session.read(tensor.name)
        _close(tensor.name, got, want, case, tensor.dtype)
        shape = tensor.shapes[0]
        assert shape is not None
        size = padded_elements(shape, tensor.dtype, tensor.region) * tensor.dtype.itemsize
        mine[tensor.offset : tensor.offset + size] = True
        if tensor.region is not Region.S_MASK and channel_alignment(tensor.region, tensor.dtype) > 1:
            rows = arena[tensor.offset : tensor.offset + size].view(tensor.dtype.numpy).reshape(*shape[:-1], -1)
            assert not rows[..., tensor.channels or shape[-1] :].view(np.uint8).any(), "padding is not zero"
    for operand in plan.nodes[0].operands:
        if operand.access.writes and isinstance(operand.ref, RangeRef):
            regions = {r.name for r in region_range(operand.ref.first, operand.ref.last)}
            for span in plan.spans:
                if span.name in regions:
                    mine[span.offset : span.offset + span.bytes] = True
    assert (arena == before)[~mine].all(), "writes outside its results"


def _in_range(plan: Plan, name: str) -> bool:
    return any(
        isinstance(o.ref, RangeRef) and name in {r.name for r in region_range(o.ref.first, o.ref.last)}
        for o in plan.nodes[0].operands
    )


def _aligned(source: np.ndarray) -> np.ndarray:
    memory = np.empty(source.size + 256, np.uint8)
    start = -memory.ctypes.data % 256
    view = memory[start : start + source.size]
    view[:] = source
    return view


def _close(name: str, got: np.ndarray, want: np.ndarray, case: Case, dtype: DType) -> None:
    if got.dtype.kind in "iu":
        np.testing.assert_array_equal(got, want, err_msg=name)
        return
    got, want = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want), err_msg=f"{name}: NaNs")
    np.testing.assert_allclose(got, want, rtol=case.ulps * ULP[dtype], atol=case.absolute, err_msg=name)
