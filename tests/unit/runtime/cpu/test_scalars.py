"""Rate, counters, the check for NaN, running statistics, metrics, copies."""

import numpy as np
import pytest

from trc_runtime.cpu.kernels.scalars import decimal_of
from trc_runtime.cpu.session import CpuSession
from trc_runtime.schema.dtypes import Precision
from trc_runtime.schema.graphs import GraphId
from trc_runtime.schema.plan import Initial
from trc_runtime.schema.regions import Region

from .plans import PlanBuilder, run_kernel
from .reference import DTYPES, random

R = Region

PRECISIONS = [Precision.FP32, Precision.FP64]
MAIN = GraphId.DEEP_FWD_BWD


def session_of(b):
    b.step("step", [0], [MAIN])
    session = CpuSession(b.build())
    session.initialise()
    return session


@pytest.mark.parametrize("dtype", DTYPES)
def test_fetch_rate_stops_at_the_end_of_the_table(dtype):
    b = PlanBuilder(precision=Precision.FP64 if dtype is np.float64 else Precision.FP32)
    b.tensor("lr_table", R.S_TABLE, (1, 1, 1, 3), initial=Initial("table"))
    b.scalar("iteration", 0)
    b.scalar("lr", 0.0)
    b.node("fetch_rate", writes={"lr": "lr"}, scalars={"lr_table": "lr_table", "iteration": "iteration"})
    session = session_of(b)
    assert not session.read("lr_table").any()
    session.write("lr_table", np.array([[[[0.1, 0.2, 0.3]]]], dtype))
    for iteration, want in ((0, 0.1), (2, 0.3), (3, 0.3), (2_000_000_000, 0.3)):
        session.write("iteration", [[[[iteration]]]])
        session.run("step", 0)
        assert session.read("lr").item() == dtype(want)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("applied", [0, 1, 9, 999, 1_000_000])
def test_bias_correction(precision, applied):
    b = PlanBuilder(precision=precision)
    b.scalar("beta1", 0.9)
    b.scalar("beta2", 0.999)
    b.scalar("applied", applied)
    names = [b.scalar(f"bias_correction{i}", 0.0) for i in (1, 2)]
    b.node("bias_correction", writes={n: n for n in names}, scalars={n: n for n in ("beta1", "beta2", "applied")})
    session = session_of(b)
    session.run("step", 0)
    for name, beta in zip(names, (0.9, 0.999), strict=True):
        # from the decimal that the user wrote, though it is stored as float32
        want = 1 / (1 - beta ** (applied + 1))
        np.testing.assert_allclose(session.read(name).item(), want, rtol=6e-8 if precision is Precision.FP32 else 1e-15)


def test_decimal_of_recovers_what_was_written():
    for value in (0.9, 0.999, 0.99, 0.9995, 0.5, 0.123456, 0.98):
        assert decimal_of(np.float32(value)) == value
        assert decimal_of(np.float64(value)) == value


@pytest.mark.parametrize("nan", [0, 1])
def test_count_step(nan):
    b = PlanBuilder()
    b.scalar("iteration", 5)
    b.scalar("applied", 3)
    b.scalar("has_nan", nan)
    b.node("count_step", updates={n: n for n in ("iteration", "applied")}, scalars={"has_nan": "has_nan"})
    session = session_of(b)
    session.run("step", 0)
    assert session.read("iteration").item() == 6
    assert session.read("applied").item() == (3 if nan else 4)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_check_nan(precision):
    shape = (37, 1, 1, 1001)
    b = PlanBuilder(precision=precision)
    b.tensor("a.bias.grad", R.G_FC_BIAS, (1, 1, 1, 37))
    b.tensor("a.weight.grad", R.G_FC_WEIGHT, shape)
    b.scalar("has_nan", 0)
    b.node("check_nan", reads={"range": (R.G_BN_BIAS, R.G_DEEP_CONV)}, writes={"has_nan": "has_nan"})
    session = session_of(b)
    (g,) = random(1, shape, dtype=precision.master.numpy)

    def flag():
        session.run("step", 0)
        return session.read("has_nan").item()

    for value in (g, 0 * g, np.full_like(g, np.finfo(g.dtype).max), np.full_like(g, np.finfo(g.dtype).tiny)):
        session.write("a.weight.grad", value)
        assert flag() == 0
    for bad in (np.nan, np.inf, -np.inf, -np.nan):
        for at in ((0, 0), (36, 1000), (17, 500)):
            value = g.copy()
            value[at[0], 0, 0, at[1]] = bad
            session.write("a.weight.grad", value)
            assert flag() == 1
        session.write("a.weight.grad", g)
        assert flag() == 0
    bias = np.zeros((1, 1, 1, 37))
    bias[..., 36] = np.nan
    session.write("a.bias.grad", bias)
    assert flag() == 1


@pytest.mark.parametrize("nan", [0, 1])
def test_commit_stats(nan):
    b = PlanBuilder()
    for name, c in (("a", 7), ("b", 100)):
        for leaf in ("prev_mean", "prev_var", "next_mean", "next_var"):
            b.tensor(f"{name}.{leaf}", R[f"B_{leaf.upper()}"], (1, 1, 1, c))
    b.scalar("has_nan", nan)
    b.node(
        "commit_stats",
        reads={"next": (R.B_NEXT_MEAN, R.B_NEXT_VAR)},
        updates={"prev": (R.B_PREV_MEAN, R.B_PREV_VAR)},
        scalars={"has_nan": "has_nan"},
    )
    session = session_of(b)
    values = {}
    for n, t in enumerate(session.plan.tensors[:-1]):
        (values[t.name],) = random(n, t.shapes[0])
        session.write(t.name, values[t.name])
    session.run("step", 0)
    for name, value in values.items():
        want = value if nan or "next" in name else values[name.replace("prev", "next")]
        assert np.array_equal(session.read(name), want)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_metrics(precision):
    b = PlanBuilder(precision=precision)
    for name in ("loss", "top1", "top5"):
        b.tensor(name, R.R_RESULT, (1, 1, 1, 1))
        b.tensor(f"accum_{name}", R.R_RESULT_ACCUMULATED, (1, 1, 1, 1))
    b.scalar("batch_size", 7)
    b.scalar("has_nan", 0)
    b.node(
        "accumulate_metrics",
        reads={n: n for n in ("loss", "top1", "top5")},
        updates={f"accum_{n}": f"accum_{n}" for n in ("loss", "top1", "top5")},
        scalars={"batch_size": "batch_size", "has_nan": "has_nan"},
    )
    session = session_of(b)
    for name, value in (("loss", 0.5), ("top1", 3), ("top5", 6)):
        session.write(name, [[[[value]]]])
    for flag in (0, 1, 0):
        session.write("has_nan", [[[[flag]]]])
        session.run("step", 0)
    assert [session.read(f"accum_{n}").item() for n in ("loss", "top1", "top5")] == [7, 6, 12]
    session.write("loss", [[[[np.nan]]]])
    session.write("has_nan", [[[[1]]]])
    session.run("step", 0)
    assert session.read("accum_loss").item() == 7


def test_clear_covers_the_range_and_nothing_else():
    b = PlanBuilder()
    b.tensor("a.bias", R.W_FC_BIAS, (1, 1, 1, 5))
    b.tensor("a.bias.grad", R.G_FC_BIAS, (1, 1, 1, 5))
    b.tensor("a.weight.grad", R.G_FC_WEIGHT, (3, 1, 1, 5))
    b.tensor("loss", R.R_RESULT, (1, 1, 1, 1))
    b.node("clear", writes={"range": (R.G_BN_BIAS, R.G_DEEP_CONV)})
    session = session_of(b)
    for t in session.plan.tensors:
        session.write(t.name, np.ones(t.shapes[0]))
    session.run("step", 0)
    assert {t.name: bool(session.read(t.name).any()) for t in session.plan.tensors} == {
        "a.bias": True,
        "a.bias.grad": False,
        "a.weight.grad": False,
        "loss": True,
    }


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (3, 5, 7, 33)])
def test_copy_and_add(shape, dtype):
    a, b = random(1, shape, shape, dtype=dtype)
    assert np.array_equal(run_kernel("copy", {"x": a}, {"y": shape}, dtype)["y"], a)
    for alias in ({}, {"y": "a"}, {"y": "b"}):
        assert np.array_equal(run_kernel("add_fwd", {"a": a, "b": b}, {"y": shape}, dtype, alias=alias)["y"], a + b)
    with pytest.raises(ValueError, match="node copy of layer 'layer1': copies"):
        run_kernel("copy", {"x": a}, {"y": (*shape[:3], shape[3] + 1)}, dtype)
