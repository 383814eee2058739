import numpy as np
import pytest

from trc_runtime.rng import philox, uniform_of

from .plans import run_kernel
from .reference import DTYPES, random

SEED = 0x89ABCDEF01234567
WORDS = [w - (1 << 32) if w >> 31 else w for w in (SEED & 0xFFFFFFFF, SEED >> 32)]


def drop(x, p, dtype=np.float32, stream=77, iteration=3, alias=None, seed=WORDS):
    return run_kernel(
        "dropout_fwd",
        {"x": x},
        {"y": x.shape, "mask": x.shape},
        dtype,
        scalars={"seed": seed, "iteration": iteration},
        alias=alias,
        p=p,
        stream=stream,
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (3, 1, 1, 7), (2, 3, 5, 33), (5, 1, 1, 6001), (700, 1, 1, 3)])
def test_keeps_by_the_counter_of_sample_and_element(shape, dtype):
    (x,) = random(1, shape, dtype=dtype)
    p = 0.3
    got = drop(x, p, dtype)
    elements = x[0].size
    mask, y = got["mask"].reshape(-1, elements), got["y"].reshape(-1, elements)
    rng = np.random.default_rng(0)
    for _ in range(50):
        n, e = int(rng.integers(shape[0])), int(rng.integers(elements))
        assert mask[n, e] == (uniform_of(philox(SEED, (77, 3, n, e // 4))[e % 4]) >= p)
    np.testing.assert_allclose(y, x.reshape(y.shape) * mask / (1 - p), rtol=1e-6 if dtype == np.float32 else 1e-14)
    assert set(np.unique(mask)) <= {0, 1}


def test_statistics():
    x = np.ones((64, 1, 1, 4096), np.float32)
    for p in (0.1, 0.5, 0.9):
        got = drop(x, p)
        n = x.size
        assert abs(got["mask"].mean() - (1 - p)) < 5 * np.sqrt(p * (1 - p) / n)
        assert abs(got["y"].mean(dtype=np.float64) - 1) < 5 * np.sqrt(p / (1 - p) / n)
        rows = got["mask"].reshape(64, -1).mean(1)
        assert abs(rows - (1 - p)).max() < 5 * np.sqrt(p * (1 - p) / 4096)


def test_a_sample_does_not_depend_on_its_batch():
    (x,) = random(2, (9, 1, 1, 50))
    whole = drop(x, 0.5)
    part = drop(x[:4].copy(), 0.5)
    assert all(np.array_equal(whole[n][:4], part[n]) for n in whole)


def test_every_key_counts():
    (x,) = random(2, (4, 1, 1, 256))
    base = drop(x, 0.5)["mask"]
    assert np.array_equal(base, drop(x, 0.5)["mask"])
    for other in ({"iteration": 4}, {"stream": 78}, {"seed": [WORDS[0], WORDS[1] + 1]}, {"seed": [WORDS[0] + 1, 0]}):
        assert abs(np.mean(drop(x, 0.5, **other)["mask"] == base) - 0.5) < 0.1


def test_in_place_and_backward():
    x, dy = random(4, (30, 2, 2, 99), (30, 2, 2, 99))
    apart = drop(x, 0.4)
    assert np.array_equal(drop(x, 0.4, alias={"y": "x"})["y"], apart["y"])
    inputs = {"dy": dy, "mask": apart["mask"]}
    dx = run_kernel("dropout_bwd", inputs, {"dx": x.shape}, p=0.4)["dx"]
    np.testing.assert_allclose(dx, dy * apart["mask"] / 0.6, rtol=1e-6)
    assert np.array_equal(run_kernel("dropout_bwd", inputs, {"dx": x.shape}, alias={"dx": "dy"}, p=0.4)["dx"], dx)


def test_the_mask_need_not_be_kept():
    (x,) = random(4, (5, 1, 1, 99))
    alone = run_kernel(
        "dropout_fwd", {"x": x}, {"y": x.shape}, scalars={"seed": WORDS, "iteration": 3}, p=0.5, stream=77
    )
    assert np.array_equal(alone["y"], drop(x, 0.5)["y"])


def test_extremes():
    (x,) = random(1, (3, 1, 1, 9))
    assert np.array_equal(drop(x, 0.0)["y"], x)
    assert not drop(x, 1.0)["y"].any()
    with pytest.raises(ValueError, match=r"p must be between 0 and 1, not 1\.5"):
        drop(x, 1.5)
