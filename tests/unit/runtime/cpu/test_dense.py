import numpy as np
import pytest

from .plans import run_kernel
from .reference import DTYPES, eps, random, within

SIZES = [(1, 1, 1), (3, 7, 33), (33, 1, 7), (200, 65, 129), (7, 300, 1)]


def bound(a, b, dtype):
    """The error of a product: its terms' number times the rounding of the sum of their magnitudes."""
    return (a.shape[1] + 2) * eps(dtype) * (np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "i", "o"), SIZES)
def test_fc(n, i, o, dtype):
    for seed in range(2):
        x, w, b, dy = random(seed, (n, 1, 1, i), (o, 1, 1, i), (1, 1, 1, o), (n, 1, 1, o), dtype=dtype)
        x2, w2, dy2 = x.reshape(n, i), w.reshape(o, i), dy.reshape(n, o)
        x64, w64, dy64 = (a.astype(np.float64) for a in (x2, w2, dy2))
        inputs = {"x": x, "weight": w}
        plain = run_kernel("fc_fwd", inputs, {"y": dy.shape}, dtype)["y"].reshape(n, o)
        within(plain, x64 @ w64.T, bound(x2, w2.T, dtype))
        biased = run_kernel("fc_fwd", {**inputs, "bias": b}, {"y": dy.shape}, dtype)["y"].reshape(n, o)
        extra = 2 * eps(dtype) * (np.abs(b.reshape(o)) + np.abs(x64 @ w64.T))
        within(biased, x64 @ w64.T + b.reshape(o), bound(x2, w2.T, dtype) + extra)
        dx = run_kernel("fc_bwd_data", {"dy": dy, "weight": w}, {"dx": x.shape}, dtype)["dx"]
        within(dx.reshape(n, i), dy64 @ w64, bound(dy2, w2, dtype))
        dw = run_kernel("fc_bwd_weight", {"dy": dy, "x": x}, {"dweight": w.shape}, dtype)["dweight"]
        within(dw.reshape(o, i), dy64.T @ x64, bound(dy2.T, x2, dtype))
        db = run_kernel("fc_bwd_bias", {"dy": dy}, {"dbias": b.shape}, dtype)["dbias"]
        within(db.reshape(o), dy64.sum(0), n * eps(dtype) * np.abs(dy64).sum(0))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, "fp16", "bf16"])
@pytest.mark.parametrize(("act", "high"), [("relu", np.inf), ("relu6", 6.0)])
def test_fc_with_a_rectifier_before_and_behind_it(act, high, dtype):
    x, w, b, dy = random(3, (9, 1, 1, 13), (11, 1, 1, 13), (1, 1, 1, 11), (9, 1, 1, 11), dtype=np.float32)
    x, b = np.clip(8 * x, 0, high), 4 * b
    inputs = {"x": x, "weight": w, "bias": b}
    plain = run_kernel("fc_fwd", inputs, {"y": dy.shape}, dtype, act="none")["y"].astype(np.float64)
    y = run_kernel("fc_fwd", inputs, {"y": dy.shape}, dtype, act=act)["y"].astype(np.float64)
    np.testing.assert_array_equal(y, np.clip(plain, 0, high))
    w[0, 0, 0, 0] = np.nan  # what is not let through is zero, whatever it is
    back = {"dy": dy, "weight": w}
    plain = run_kernel("fc_bwd_data", back, {"dx": x.shape}, dtype, act="none")["dx"].astype(np.float64)
    dx = run_kernel("fc_bwd_data", {**back, "x": x}, {"dx": x.shape}, dtype, act=act)["dx"].astype(np.float64)
    np.testing.assert_array_equal(dx, np.where((x > 0) & (x < high), plain, 0))


def test_fc_takes_an_image_in_memory_order():
    x, w = random(1, (4, 3, 5, 2), (7, 1, 1, 30), dtype=np.float64)
    y = run_kernel("fc_fwd", {"x": x, "weight": w}, {"y": (4, 1, 1, 7)}, np.float64)["y"]
    np.testing.assert_allclose(y.reshape(4, 7), x.reshape(4, 30) @ w.reshape(7, 30).T, rtol=1e-12, atol=1e-12)
    dy = random(2, (4, 1, 1, 7), dtype=np.float64)[0]
    dx = run_kernel("fc_bwd_data", {"dy": dy, "weight": w}, {"dx": x.shape}, np.float64)["dx"]
    np.testing.assert_allclose(dx.reshape(4, 30), dy.reshape(4, 7) @ w.reshape(7, 30), rtol=1e-12, atol=1e-12)


def test_long_bias_sums_keep_their_digits():
    (dy,) = random(3, (100_000, 1, 1, 3))
    dy += 1
    db = run_kernel("fc_bwd_bias", {"dy": dy}, {"dbias": (1, 1, 1, 3)})["dbias"].reshape(3)
    want = dy.reshape(-1, 3).astype(np.float64).sum(0)
    # one running sum of 100,000 terms would be about 100 times as far off
    within(db, want, (128 + 100_000 / 128) * eps(np.float32) / 16 * np.abs(dy.reshape(-1, 3)).sum(0))


@pytest.mark.parametrize("alias", [{}, {"y": "x"}])
def test_flatten(alias):
    (x,) = random(1, (3, 4, 5, 7))
    y = run_kernel("flatten_fwd", {"x": x}, {"y": (3, 1, 1, 140)}, alias=alias)["y"]
    assert np.array_equal(y.reshape(-1), x.reshape(-1))
    back = {"dx": "dy"} if alias else {}
    dx = run_kernel("flatten_bwd", {"dy": y}, {"dx": x.shape}, alias=back)["dx"]
    assert np.array_equal(dx, x)
