"""The moving average alone: against float64, with its warm-up, skipped steps, gaps, and the sums of a pass."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.runtime.cpu.plans import PlanBuilder
from tests.unit.runtime.cpu.reference import within
from trc_runtime.cpu.session import CpuSession
from trc_runtime.schema.dtypes import Precision
from trc_runtime.schema.graphs import GraphId
from trc_runtime.schema.plan import Initial
from trc_runtime.schema.regions import Region

R = Region
SHAPES = {"BN_BIAS": (1, 1, 1, 3), "FC_WEIGHT": (5, 1, 1, 77), "DEEP_CONV": (300, 3, 3, 64)}
"""The last one is longer than a block."""


def average(precision: Precision, alpha: float, warmup: bool = False) -> CpuSession:
    b = PlanBuilder(precision=precision)
    for letter in "WE":
        for place, shape in SHAPES.items():
            b.tensor(f"{letter}.{place}", R[f"{letter}_{place}"], shape)
    for name, value in (("alpha", alpha), ("applied", 0), ("has_nan", 0)):
        b.scalar(name, value)
    b.node(
        "ema_update",
        GraphId.EMA_UPDATE,
        reads={"w": (R.W_BN_BIAS, R.W_DEEP_CONV)},
        updates={"e": (R.E_BN_BIAS, R.E_DEEP_CONV)},
        scalars={n: n for n in ("alpha", "applied", "has_nan")},
        warmup=warmup,
    )
    b.step("update", [0], [GraphId.EMA_UPDATE])
    session = CpuSession(b.build())
    session.initialise()
    return session


@pytest.mark.parametrize("warmup", [False, True])
@pytest.mark.parametrize("precision", [Precision.FP32, Precision.FP64])
def test_twenty_steps_against_float64(precision: Precision, warmup: bool) -> None:
    """An update is within 2 u alpha |w - e| + u |e| of the exact one, and shrinks older errors by 1 - alpha."""
    decay, rng = 0.9, np.random.default_rng(3)
    session = average(precision, 1 - decay, warmup)
    dtype = precision.master.numpy
    u = np.finfo(dtype).eps / 2
    want, bound = {}, {}
    for place, shape in SHAPES.items():
        session.write(f"E.{place}", rng.standard_normal(shape).astype(dtype))
        want[place] = session.read(f"E.{place}").astype(np.longdouble)
        bound[place] = np.zeros(shape)
    for t in range(1, 21):
        session.write("applied", [[[[t]]]])
        d = min(decay, (1 + t) / (10 + t)) if warmup else decay
        for place, shape in SHAPES.items():
            w = rng.standard_normal(shape).astype(dtype)
            session.write(f"W.{place}", w)
            old = want[place]
            want[place] = d * old + (1 - d) * w.astype(np.longdouble)
            # the rounding of alpha itself, of the difference, of the product, and of the sum
            step = 4 * u * (1 - d) * np.abs(w - old) + u * np.abs(want[place])
            bound[place] = (bound[place] * d + step.astype(np.float64)) * (1 + 8 * u)
        session.run("update", 0)
    for place in SHAPES:
        within(session.read(f"E.{place}"), want[place].astype(np.float64), bound[place] + 1e-300)


def test_the_decay_of_the_warm_up() -> None:
    """1 - alpha is (1 + t) / (10 + t) until that passes the decay."""
    session = average(Precision.FP64, 0.001, warmup=True)
    decays = []
    for t in (1, 2, 90, 8989, 8990, 8992, 100_000, 2**31 - 1):
        session.write("applied", [[[[t]]]])
        for place, shape in SHAPES.items():
            session.write(f"W.{place}", np.zeros(shape))
            session.write(f"E.{place}", np.ones(shape))
        session.run("update", 0)
        decays.append(session.read("E.FC_WEIGHT").flat[0])
    assert decays == pytest.approx([2 / 11, 3 / 12, 91 / 100, 8990 / 8999, 0.999, 0.999, 0.999, 0.999], rel=1e-14)


@pytest.mark.parametrize("warmup", [False, True])
def test_a_skipped_step_changes_no_byte(warmup: bool) -> None:
    session, rng = average(Precision.FP32, 0.5, warmup), np.random.default_rng(0)
    for place, shape in SHAPES.items():
        session.write(f"W.{place}", np.full(shape, np.nan))
        session.write(f"E.{place}", rng.standard_normal(shape))
    session.write("has_nan", [[[[1]]]])
    before = session.arena.tobytes()
    session.run("update", 0)
    assert session.arena.tobytes() == before
    session.write("has_nan", [[[[0]]]])
    session.run("update", 0)
    assert np.isnan(session.read("E.FC_WEIGHT")).all()


def test_equal_weights_and_gaps_stay_as_they_are() -> None:
    session, rng = average(Precision.FP32, 0.1), np.random.default_rng(1)
    for place, shape in SHAPES.items():
        value = rng.standard_normal(shape)
        session.write(f"W.{place}", value)
        session.write(f"E.{place}", value)
    before = session.arena.tobytes()
    session.run("update", 0)
    assert session.arena.tobytes() == before, "an average of one value is that value, to the bit"


def test_ranges_of_different_sizes_are_refused() -> None:
    b = PlanBuilder()
    b.tensor("w", R.W_FC_WEIGHT, (3, 1, 1, 100))
    b.tensor("e", R.E_FC_WEIGHT, (3, 1, 1, 5))
    for name in ("alpha", "applied", "has_nan"):
        b.scalar(name, 0)
    b.node(
        "ema_update",
        reads={"w": (R.W_FC_WEIGHT, R.W_DEEP_CONV)},
        updates={"e": (R.E_FC_WEIGHT, R.E_DEEP_CONV)},
        scalars={n: n for n in ("alpha", "applied", "has_nan")},
        warmup=False,
    )
    b.step("update", [0], [b.nodes[0].bucket])
    with pytest.raises(ValueError, match="node ema_update: takes two ranges of one size, not 384, 128 elements"):
        CpuSession(b.build()).run("update", 0)


def test_an_average_is_drawn_like_its_weight() -> None:
    b = PlanBuilder(seed=5)
    rule = Initial("kaiming_uniform", fan=12)
    for name, region in (("a.weight", R.W_FC_WEIGHT), ("b.weight", R.W_FC_WEIGHT), ("a.weight.ema", R.E_FC_WEIGHT),
                         ("b.weight.ema", R.E_FC_WEIGHT)):  # fmt: skip
        b.tensor(name, region, (7, 1, 1, 12), initial=rule)
    b.node("clear", writes={"range": (R.W_FC_WEIGHT, R.W_FC_WEIGHT)})
    b.step("step", [0], [b.nodes[0].bucket])
    session = CpuSession(b.build())
    session.initialise()
    values = {t.name: session.read(t.name).tobytes() for t in session.plan.tensors}
    assert values["a.weight"] == values["a.weight.ema"] != values["b.weight"] == values["b.weight.ema"]
    session.initialise(draw=False)
    assert not any(session.read(name).any() for name in values)


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.FP64])
def test_sums_count_the_labels(precision: Precision) -> None:
    b = PlanBuilder(precision=precision)
    results = ("loss", "top1", "top5")
    for name in results:
        b.tensor(name, R.R_RESULT, (1, 1, 1, 1))
        b.tensor(f"accum_{name}", R.R_RESULT_ACCUMULATED, (1, 1, 1, 1))
    b.tensor("label", R.T_TEMP_INT32, *((n, 1, 1, 1) for n in (7, 3, 7, 3, 7, 3)))
    sums = {f"accum_{n}": f"accum_{n}" for n in results}
    b.node("accumulate_batch", GraphId.INF_EMA_A, reads={n: n for n in (*results, "label")}, updates=sums)
    b.step("full", [4], [GraphId.INF_EMA_A])
    b.step("last", [5], [GraphId.INF_EMA_A])
    session = CpuSession(b.build())
    session.initialise()
    for name, value in (("loss", 0.5), ("top1", 3), ("top5", 6)):
        session.write(name, [[[[value]]]])
    for step, column in (("full", 4), ("last", 5), ("full", 4)):
        session.run(step, column)
    assert [session.read(f"accum_{n}").item() for n in results] == [0.5 * (7 + 3 + 7), 9, 18]
