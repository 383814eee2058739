import numpy as np
import pytest
import torch
import torch.nn.functional as nn

from trc_runtime.cpu.conv import engine

from .plans import run_kernel
from .reference import DTYPES, eps, random, torch64, within


@pytest.fixture(autouse=True, params=["numpy", "native"])
def engines(request):
    """Each test runs in both forms."""
    if request.param == "native" and not engine.native_available():
        pytest.skip("no C compiler here")
    with engine.using(request.param):
        yield


SHAPES = [(2, 1, 1, 1), (3, 1, 1, 7), (33, 1, 1, 65), (2, 5, 7, 3), (300, 1, 1, 4), (7, 13, 11, 2)]
EPS, MOMENTUM = 1e-5, 0.1


def inputs(shape, dtype, seed):
    x, stats, dy = random(seed, shape, (4, 1, 1, 1, shape[-1]), shape, dtype=dtype)
    x = x * dtype(2) + dtype(0.7)
    return x, dy, {"gamma": stats[0], "beta": stats[1], "prev_mean": stats[2], "prev_var": np.abs(stats[3])}


def forward(x, parts, dtype, alias=None):
    channels = (1, 1, 1, x.shape[-1])
    names = ("next_mean", "next_var", "saved_mean", "saved_invstd")
    outputs = {"y": x.shape, **dict.fromkeys(names, channels)}
    return run_kernel("bn_fwd", {"x": x, **parts}, outputs, dtype, alias=alias, eps=EPS, momentum=MOMENTUM)


def backward(dy, x, parts, saved, dtype, dx=True, alias=None):
    channels = (1, 1, 1, x.shape[-1])
    arrays = {"dy": dy, "x": x, "gamma": parts["gamma"], **{n: saved[n] for n in ("saved_mean", "saved_invstd")}}
    outputs = {"dgamma": channels, "dbeta": channels, **({"dx": x.shape} if dx else {})}
    return run_kernel("bn_bwd", arrays, outputs, dtype, alias=alias)


def reference(x, dy, parts):
    flat = {n: torch.tensor(a.reshape(-1).astype(np.float64)) for n, a in parts.items()}
    mean, var = flat["prev_mean"].clone(), flat["prev_var"].clone()

    def function(x, gamma, beta):
        moved = x.permute(0, 3, 1, 2)
        y = nn.batch_norm(moved, mean, var, gamma.reshape(-1), beta.reshape(-1), True, MOMENTUM, EPS)
        return y.permute(0, 2, 3, 1)

    y, grads = torch64(function, x, parts["gamma"], parts["beta"], dy=dy)
    return y, grads, mean.numpy(), var.numpy()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_against_torch(shape, dtype):
    for seed in range(3):
        x, dy, parts = inputs(shape, dtype, seed)
        y, (dx, dgamma, dbeta), mean, var = reference(x, dy, parts)
        got = forward(x, parts, dtype)
        rows = x.size // shape[-1]
        unit = eps(dtype)
        # sums of at most 128 + rows / 128 terms, of values spread by sigma: the error of a normalised value grows
        # with the inverse of its channel's deviation
        terms = min(rows, 128) + rows / 128 + 10
        spread = (np.abs(x).max() / np.sqrt(x.astype(np.float64).var(axis=(0, 1, 2)) + EPS)).reshape(-1)
        scale = (1 + spread) * (np.abs(parts["gamma"]) + np.abs(parts["beta"])).reshape(-1)
        within(got["y"], y, terms * unit * scale * (1 + np.abs(y)))
        within(got["next_mean"].reshape(-1), mean, terms * unit * (1 + np.abs(x).max()))
        within(got["next_var"].reshape(-1), var, 4 * terms * unit * (1 + np.abs(x).max() ** 2))
        back = backward(dy, x, parts, got, dtype)
        total = np.abs(dy).sum(axis=(0, 1, 2), dtype=np.float64)
        within(back["dbeta"].reshape(-1), dbeta.reshape(-1), terms * unit * total)
        within(back["dgamma"].reshape(-1), dgamma.reshape(-1), 4 * terms * unit * total * (1 + spread))
        bound = 8 * terms * unit * (1 + spread) ** 2 * np.abs(parts["gamma"]).reshape(-1) * np.abs(dy).max()
        invstd = got["saved_invstd"].reshape(-1).astype(np.float64)
        within(back["dx"], dx, bound * (1 + invstd))
        without = backward(dy, x, parts, got, dtype, dx=False)
        assert all(np.array_equal(without[n], back[n]) for n in without)


def test_in_place():
    x, dy, parts = inputs((300, 1, 1, 5), np.float32, 1)
    apart = forward(x, parts, np.float32)
    again = forward(x, parts, np.float32, alias={"y": "x"})
    assert all(np.array_equal(apart[n], again[n]) for n in apart)
    back = backward(dy, x, parts, apart, np.float32)
    for place in ("dy", "x"):
        aliased = backward(dy, x, parts, apart, np.float32, alias={"dx": place})
        assert all(np.array_equal(back[n], aliased[n]) for n in back)


def test_a_large_mean_does_not_cancel():
    (x,) = random(1, (200, 1, 1, 3))
    x += np.float32(1000)
    _, dy, parts = inputs((200, 1, 1, 3), np.float32, 1)
    y = reference(x, dy, parts)[0]
    got = forward(x, parts, np.float32)
    # the input itself is rounded to 6e-5 of its deviation
    within(got["y"], y, 2e-4 * (1 + np.abs(y)))


def test_a_single_row_keeps_the_running_variance():
    x, _, parts = inputs((1, 1, 1, 4), np.float64, 1)
    got = forward(x, parts, np.float64)
    assert np.array_equal(got["next_var"], parts["prev_var"])
    np.testing.assert_allclose(got["y"], parts["beta"], rtol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("alias", [{}, {"y": "x"}])
def test_fold_and_affine(dtype, alias):
    x, _, parts = inputs((7, 2, 3, 33), dtype, 1)
    arrays = {"gamma": parts["gamma"], "beta": parts["beta"], "mean": parts["prev_mean"], "var": parts["prev_var"]}
    c = (1, 1, 1, 33)
    folded = run_kernel("bn_fold", arrays, {"eq_scale": c, "eq_bias": c}, dtype, eps=EPS)
    a64 = {n: a.astype(np.float64) for n, a in arrays.items()}
    scale = a64["gamma"] / np.sqrt(a64["var"] + EPS)
    within(folded["eq_scale"], scale, 4 * eps(dtype) * np.abs(scale))
    bias = a64["beta"] - a64["mean"] * scale
    within(folded["eq_bias"], bias, 6 * eps(dtype) * (np.abs(a64["beta"]) + np.abs(a64["mean"] * scale)))
    put = {"x": x, "scale": folded["eq_scale"], "bias": folded["eq_bias"]}
    y = run_kernel("affine_fwd", put, {"y": x.shape}, dtype, alias=alias)["y"]
    want = (x.astype(np.float64) - a64["mean"]) * scale + a64["beta"]
    within(y, want, 16 * eps(dtype) * (np.abs(x * scale) + np.abs(a64["mean"] * scale) + np.abs(a64["beta"])))
