"""Every convolution kind against PyTorch in float64, in both engines."""

import numpy as np
import pytest

import trc_runtime.cpu.kernels.conv  # noqa: F401 - registers the kinds
from trc_runtime.cpu.conv import engine

from .conv_cases import CASES, bf16, magnitudes, params_of, run_alone, shapes_of, torch_conv, widen
from .plans import run_kernel
from .reference import eps, random, within

ENGINES = ["numpy", "native"]
STORAGES = ["f64", "f32", "f16", "bf16"]
EPS = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}
TYPES = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": np.uint16}


@pytest.fixture(params=ENGINES)
def by(request):
    if request.param == "native" and not engine.native_available():
        pytest.skip("no C compiler here")
    with engine.using(request.param):
        yield request.param


def stored(values, storage):
    return bf16(values) if storage == "bf16" else np.asarray(values).astype(TYPES[storage])


def draw(case, storage, seed):
    """x, weight, dy in a storage type."""
    shapes = shapes_of(case)
    return [stored(a, storage) for a in random(seed, *(shapes[n] for n in ("x", "weight", "y")), dtype=np.float64)]


def master(storage):
    return np.float64 if storage == "f64" else np.float32


def term_bound(storage, terms, size, value):
    """Sums in the compute type, rounded once to storage (at worst to float16's subnormal grid)."""
    compute = eps(master(storage))
    once = EPS[storage] / 2 * np.abs(value) if storage in ("f16", "bf16") else 0.0
    return (terms + 3) * compute * size * (1 + EPS[storage]) + once + (2.0**-24 if storage == "f16" else 0)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_against_pytorch(case, storage, by):
    shapes, params = shapes_of(case), params_of(case)
    x, weight, dy = draw(case, storage, seed=sum(case))
    (bias,) = random(3, shapes["bias"], dtype=master(storage))
    wide = [widen(a) for a in (x, weight, dy)]
    y, dx, dw, db = torch_conv(case, *wide, bias)
    y_size, dx_size, dw_size, db_size = magnitudes(case, *wide, bias)
    kind = TYPES[storage]
    taps, pixels = int(np.prod(weight.shape[1:])), int(np.prod(y.shape[:3]))

    got = run_alone("conv_fwd", {"x": x, "weight": weight, "bias": bias}, {"y": (y.shape, kind)}, **params)["y"]
    within(widen(got), y, term_bound(storage, taps + 1, y_size, y))
    unbiased = run_alone("conv_fwd", {"x": x, "weight": weight}, {"y": (y.shape, kind)}, **params)["y"]
    within(widen(unbiased), y - bias, term_bound(storage, taps, y_size, y - bias))
    got = run_alone("conv_bwd_data", {"dy": dy, "weight": weight}, {"dx": (x.shape, kind)}, **params)["dx"]
    terms = weight.shape[0] // case[9] * weight.shape[1] * weight.shape[2]
    within(widen(got), dx, term_bound(storage, terms, dx_size, dx))
    got = run_alone("conv_bwd_weight", {"dy": dy, "x": x}, {"dweight": (weight.shape, kind)}, **params)["dweight"]
    within(widen(got), dw, term_bound(storage, pixels, dw_size, dw))
    got = run_alone("conv_bwd_bias", {"dy": dy}, {"dbias": (bias.shape, master(storage))})["dbias"]
    within(got.reshape(-1), db, 2 * eps(master(storage)) * db_size)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_statistics(case, storage, by):
    """They are those of y as stored, to one rounding; y does not change for them."""
    shapes, params = shapes_of(case), params_of(case)
    x, weight, _ = draw(case, storage, seed=sum(case) + 1)
    (bias,) = random(4, shapes["bias"], dtype=master(storage))
    kind, row = TYPES[storage], ((1, 1, 1, case[4]), master(storage))
    for extra in ({}, {"bias": bias}):
        inputs = {"x": x, "weight": weight, **extra}
        plain = run_alone("conv_fwd", inputs, {"y": (shapes["y"], kind)}, **params)["y"]
        outputs = {"y": (shapes["y"], kind), "sum": row, "sumsq": row}
        got = run_alone("conv_stats_fwd", inputs, outputs, **params)
        assert got["y"].tobytes() == plain.tobytes()
        values = widen(plain).reshape(-1, case[4])
        small = eps(master(storage)) + len(values) * 2.0**-52
        within(got["sum"].reshape(-1), values.sum(0), small * np.abs(values).sum(0))
        within(got["sumsq"].reshape(-1), (values**2).sum(0), small * (values**2).sum(0))


def normalised(x, scale, shift, act, storage):
    """The value that the prologue stands for, rounded to storage; independent of the kernels' code."""
    compute = master(storage)
    value = widen(x).astype(compute) * widen(scale).astype(compute) + widen(shift).astype(compute)
    if act != "none":
        value = np.where(value < 0, 0, value)
    if act == "relu6":
        value = np.where(value > 6, 6, value)
    return stored(value.astype(compute), storage)


ACTS = ["none", "relu", "relu6"]
WITH_ACTS = [(case, ACTS[i % 3]) for i, case in enumerate(CASES)] + [(CASES[3], a) for a in ACTS if a != "none"]


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize(("case", "act"), WITH_ACTS, ids=str)
def test_prologue_is_a_normalised_input(case, storage, act, by):
    """Bit for bit the same as without a prologue on what it computes."""
    shapes, params = shapes_of(case), params_of(case)
    x, weight, dy = draw(case, storage, seed=sum(case) + 2)
    rows = random(5, (1, 1, 1, case[3]), (1, 1, 1, case[3]), dtype=np.float64)
    scale, shift = stored(3 * rows[0], storage), stored(rows[1] + 1, storage)
    value = normalised(x, scale, shift, act, storage)
    kind, row = TYPES[storage], ((1, 1, 1, case[4]), master(storage))
    outputs = {"y": (shapes["y"], kind)}
    given = {"scale": scale, "shift": shift}
    want = run_alone("conv_fwd", {"x": value, "weight": weight}, outputs, **params)
    got = run_alone("conv_norm_fwd", {"x": x, "weight": weight, **given}, outputs, act=act, **params)
    assert_same(got, want)
    with_stats = {**outputs, "sum": row, "sumsq": row}
    want = run_alone("conv_stats_fwd", {"x": value, "weight": weight}, with_stats, **params)
    got = run_alone("conv_norm_stats_fwd", {"x": x, "weight": weight, **given}, with_stats, act=act, **params)
    assert_same(got, want)
    gradient = {"dweight": (shapes["weight"], kind)}
    want = run_alone("conv_bwd_weight", {"dy": dy, "x": value}, gradient, **params)
    got = run_alone("conv_norm_bwd_weight", {"dy": dy, "x": x, **given}, gradient, act=act, **params)
    assert_same(got, want)


def assert_same(got, want):
    for name, array in want.items():
        # the multiplication of views in place and of copies may take other paths through BLAS
        a, b = widen(got[name]), widen(array)
        assert np.abs(a - b).max(initial=0) == 0, name


def test_on_plans():
    """Through a session, in both precisions."""
    for dtype in (np.float32, np.float64):
        case = (3, 7, 6, 4, 5, 3, 3, 2, 1, 1)
        shapes, params = shapes_of(case), params_of(case)
        x, weight, dy, bias = random(9, *(shapes[n] for n in ("x", "weight", "y", "bias")), dtype=dtype)
        y, dx, dw, db = torch_conv(case, x, weight, dy, bias)
        tight = 100 * eps(dtype)
        got = run_kernel("conv_fwd", {"x": x, "weight": weight, "bias": bias}, {"y": y.shape}, dtype, **params)["y"]
        np.testing.assert_allclose(got, y, rtol=tight, atol=tight)
        got = run_kernel("conv_bwd_data", {"dy": dy, "weight": weight}, {"dx": x.shape}, dtype, **params)["dx"]
        np.testing.assert_allclose(got, dx, rtol=tight, atol=tight)
        got = run_kernel("conv_bwd_weight", {"dy": dy, "x": x}, {"dweight": weight.shape}, dtype, **params)["dweight"]
        np.testing.assert_allclose(got, dw, rtol=tight, atol=tight)
        got = run_kernel("conv_bwd_bias", {"dy": dy}, {"dbias": bias.shape}, dtype)["dbias"]
        np.testing.assert_allclose(got.reshape(-1), db, rtol=tight, atol=tight)
