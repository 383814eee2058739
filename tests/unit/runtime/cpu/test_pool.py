"""Pools against PyTorch in float64, and masks against a search cell by cell."""

import numpy as np
import pytest
import torch
import torch.nn.functional as nn

from trc_runtime.cpu.conv import engine

from .halves import KINDS, as_stored, compute_eps, is_half, one_rounding
from .plans import run_kernel
from .reference import random, torch64, within


@pytest.fixture(autouse=True, params=["numpy", "native"])
def engines(request):
    """Each test runs in both forms."""
    if request.param == "native" and not engine.native_available():
        pytest.skip("no C compiler here")
    with engine.using(request.param):
        yield


CASES = [
    # n, h, w, c, kernel, stride, padding
    (1, 1, 1, 1, 1, 1, 0),
    (2, 1, 1, 3, 3, 1, 1),  # a window larger than the map
    (2, 1, 1, 5, 2, 2, 1),
    (3, 4, 6, 8, 2, 2, 0),
    (2, 7, 5, 3, 3, 2, 1),
    (2, 5, 9, 17, 3, 1, 1),
    (1, 9, 4, 4, 3, 3, 0),
    (2, 6, 7, 2, 2, 3, 0),  # pixels that no window meets
    (1, 8, 8, 1, 5, 2, 2),
    (1, 3, 11, 6, 7, 4, 3),
    (3, 112, 90, 16, 3, 2, 1),  # many strips
    (40, 6, 6, 8, 2, 2, 0),  # many images a strip
    (2, 13, 2, 300, 4, 1, 2),
]
IDS = [str(c) for c in CASES]


def shapes(case):
    n, h, w, c, kernel, stride, padding = case
    p, q = (h + 2 * padding - kernel) // stride + 1, (w + 2 * padding - kernel) // stride + 1
    return (n, h, w, c), (n, p, q, c), {"kernel": kernel, "stride": stride, "padding": padding}


def nchw(function):
    return lambda x: function(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


def search(x, case):
    """The mask by looking at each cell: NaN counts as larger, of several the last; else the first maximum."""
    (_, h, w, _), out, params = shapes(case)
    k, s, pad = params.values()
    best = np.full(out, -np.inf)
    mask = np.full(out, -1, np.int8)
    for i in range(out[1]):
        for j in range(out[2]):
            for tap in range(k * k):
                row, column = i * s - pad + tap // k, j * s - pad + tap % k
                if not (0 <= row < h and 0 <= column < w):
                    continue
                cell, now = x[:, row, column], best[:, i, j]
                take = np.isnan(cell) | (cell > now) | (mask[:, i, j] < 0)
                best[:, i, j] = np.where(take, cell, now)
                mask[:, i, j] = np.where(take, tap, mask[:, i, j])
    return best, mask


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_max_pool(case, kind):
    x_shape, y_shape, params = shapes(case)
    x, dy = random(sum(case), x_shape, y_shape, dtype=np.float64)
    x, dy = as_stored(np.round(2 * x) / 2, kind), as_stored(dy, kind)  # with ties
    best, want_mask = search(x, case)
    got = run_kernel("max_pool_fwd", {"x": x}, {"y": y_shape, "mask": y_shape}, kind, **params)
    assert np.array_equal(got["y"], best)
    assert np.array_equal(got["mask"], want_mask)
    assert np.array_equal(run_kernel("max_pool_fwd", {"x": x}, {"y": y_shape}, kind, **params)["y"], best)
    dx = run_kernel("max_pool_bwd", {"dy": dy, "mask": got["mask"]}, {"dx": x_shape}, kind, **params)["dx"]
    window = (params["kernel"], params["stride"], params["padding"])
    if 2 * window[2] <= window[0]:  # what PyTorch allows
        leaf = torch.tensor(x.astype(np.float64), requires_grad=True)
        y = nchw(lambda t: nn.max_pool2d(t, *window))(leaf)
        y.backward(torch.tensor(dy.astype(np.float64)))
        assert np.array_equal(got["y"], y.detach().numpy())
        want = leaf.grad.numpy()
        terms = window[0] ** 2
        size = 2 * terms * np.abs(dy).max() * compute_eps(kind)
        within(dx, want, size + one_rounding(kind, want))


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_nan_and_infinities_as_in_torch(case, kind):
    x_shape, y_shape, params = shapes(case)
    window = (params["kernel"], params["stride"], params["padding"])
    if 2 * window[2] > window[0]:
        pytest.skip("PyTorch refuses this padding")
    rng = np.random.default_rng(1)
    x = as_stored(rng.standard_normal(x_shape), kind)
    x[rng.random(x_shape) < 0.2] = np.nan
    x[rng.random(x_shape) < 0.3] = -np.inf
    leaf = torch.tensor(x.astype(np.float64))
    y, index = nn.max_pool2d(leaf.permute(0, 3, 1, 2).contiguous(), *window, return_indices=True)
    got = run_kernel("max_pool_fwd", {"x": x}, {"y": y_shape, "mask": y_shape}, kind, **params)
    assert np.array_equal(got["y"], y.permute(0, 2, 3, 1).numpy(), equal_nan=True)
    k, s, pad = window
    rows = np.arange(y_shape[1])[:, None, None] * s - pad + got["mask"] // k
    columns = np.arange(y_shape[2])[:, None] * s - pad + got["mask"] % k
    assert np.array_equal(rows * x_shape[2] + columns, index.permute(0, 2, 3, 1).numpy())


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_only_the_maximum_gets_a_gradient(kind):
    """NaN gradients of one window stay out of its neighbours' cells."""
    dy = np.full((1, 2, 2, 3), np.nan)
    dy[0, 0, 0] = 1
    mask = np.zeros((1, 2, 2, 3), np.int8)
    mask[0, 1, 1] = -1
    params = {"kernel": 2, "stride": 1, "padding": 0}
    dx = run_kernel("max_pool_bwd", {"dy": as_stored(dy, kind), "mask": mask}, {"dx": (1, 3, 3, 3)}, kind, **params)
    want = np.zeros((1, 3, 3, 3))
    want[0, 0, 0] = 1
    want[0, 0, 1] = want[0, 1, 0] = np.nan
    assert np.array_equal(dx["dx"], want, equal_nan=True)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_windows_without_cells(kind):
    """A padding as wide as the window: no cell, no maximum, no gradient."""
    x = as_stored(np.ones((1, 2, 2, 3)), kind)
    params = {"kernel": 1, "stride": 1, "padding": 1}
    got = run_kernel("max_pool_fwd", {"x": x}, {"y": (1, 4, 4, 3), "mask": (1, 4, 4, 3)}, kind, **params)
    inner = np.zeros((4, 4), bool)
    inner[1:3, 1:3] = True
    assert (got["mask"][0][~inner] == -1).all()
    assert (got["y"][0][~inner] == -np.inf).all()
    assert (got["mask"][0][inner] == 0).all()
    y = run_kernel("avg_pool_fwd", {"x": x}, {"y": (1, 4, 4, 3)}, kind, **params)["y"]
    assert np.array_equal(y[0, ..., 0], inner)
    dy = as_stored(np.full((1, 4, 4, 3), 2.0), kind)
    assert (run_kernel("avg_pool_bwd", {"dy": dy}, {"dx": (1, 2, 2, 3)}, kind, **params)["dx"] == 2).all()


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_avg_pool(case, kind):
    x_shape, y_shape, params = shapes(case)
    k, s, pad = params["kernel"], params["stride"], params["padding"]
    if 2 * pad > k:
        pytest.skip("PyTorch refuses this padding")
    x, dy = (as_stored(a, kind) for a in random(sum(case), x_shape, y_shape, dtype=np.float64))
    function = nchw(lambda t: nn.avg_pool2d(t, k, s, pad, count_include_pad=False))
    y, (dx,) = torch64(function, x, dy=dy)
    bound = (k * k + 2) * compute_eps(kind)
    size, (dx_size,) = torch64(function, np.abs(x), dy=np.abs(dy))
    within(run_kernel("avg_pool_fwd", {"x": x}, {"y": y_shape}, kind, **params)["y"], y,
           bound * size + one_rounding(kind, y))  # fmt: skip
    within(run_kernel("avg_pool_bwd", {"dy": dy}, {"dx": x_shape}, kind, **params)["dx"], dx,
           bound * dx_size + one_rounding(kind, dx))  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (3, 7, 5, 17), (70, 4, 4, 64), (2, 130, 33, 3)])
def test_gap(shape, kind):
    small = (shape[0], 1, 1, shape[3])
    x, dy = (as_stored(a, kind) for a in random(5, shape, small, dtype=np.float64))
    y, (dx,) = torch64(lambda t: t.mean(dim=(1, 2), keepdim=True), x, dy=dy)
    once = compute_eps(kind)
    size = np.abs(x).mean(axis=(1, 2), keepdims=True)
    # float64 sums of up to 4290 terms, or the result's own rounding
    tight = 4300 * 2.0**-52 + once
    within(run_kernel("gap_fwd", {"x": x}, {"y": small}, kind)["y"], y, tight * size + one_rounding(kind, y))
    within(run_kernel("gap_bwd", {"dy": dy}, {"dx": shape}, kind)["dx"], dx,
           once * np.abs(dx) + one_rounding(kind, dx))  # fmt: skip


def test_what_does_not_fit_is_refused():
    x = np.zeros((1, 4, 4, 2), np.float32)
    for params, message in (
        ({"kernel": 2, "stride": 2, "padding": 0}, "do not give"),
        ({"kernel": 2, "stride": 0, "padding": 0}, "make no pool"),
        ({"kernel": 9, "stride": 1, "padding": 0}, "do not give"),
    ):
        with pytest.raises(ValueError, match=f"node max_pool_fwd of layer 'layer1': .*{message}"):
            run_kernel("max_pool_fwd", {"x": x}, {"y": (1, 3, 3, 2)}, **params)
    with pytest.raises(ValueError, match="numbers windows up to 11, not 12"):
        run_kernel("max_pool_fwd", {"x": np.zeros((1, 12, 12, 1), np.float32)},
                   {"y": (1, 1, 1, 1), "mask": (1, 1, 1, 1)}, kernel=12, stride=1, padding=0)  # fmt: skip
    with pytest.raises(ValueError, match="node gap_fwd"):
        run_kernel("gap_fwd", {"x": x}, {"y": (1, 1, 1, 3)})
    assert not is_half(np.float32)
