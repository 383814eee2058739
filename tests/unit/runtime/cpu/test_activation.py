import numpy as np
import pytest
import torch
import torch.nn.functional as nn

from .plans import run_kernel
from .reference import DTYPES, eps, random, torch64, within

SHAPES = [(1, 1, 1, 1), (3, 1, 1, 7), (2, 3, 5, 33), (5, 1, 1, 7001)]
ACTIVATIONS = {
    "relu": (nn.relu, "y", {}),
    "tanh": (torch.tanh, "y", {}),
    "silu": (nn.silu, "x", {}),
    "relu6": (nn.relu6, "y", {}),
    "leaky_relu": (lambda x: nn.leaky_relu(x, 0.03), "y", {"slope": 0.03}),
    "hardswish": (nn.hardswish, "x", {}),
    "elu": (lambda x: nn.elu(x, 0.7), "y", {"alpha": 0.7}),
    "sigmoid": (torch.sigmoid, "y", {}),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_against_torch(name, shape, dtype):
    function, saved, params = ACTIVATIONS[name]
    for seed in range(3):
        x, dy = random(seed, shape, shape, dtype=dtype, scale=4.0)
        y, (dx,) = torch64(function, x, dy=dy)
        got = run_kernel(f"{name}_fwd", {"x": x}, {"y": shape}, dtype, **params)["y"]
        # a handful of roundings, of values as large as the input
        within(got, y, 8 * eps(dtype) * (1 + np.abs(x)))
        kept = {"x": x, "y": got}[saved]
        back = run_kernel(f"{name}_bwd", {"dy": dy, saved: kept}, {"dx": shape}, dtype, **params)["dx"]
        within(back, dx, 16 * eps(dtype) * np.abs(dy) * (1 + np.abs(x)))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_in_place(name):
    _, saved, params = ACTIVATIONS[name]
    shape = (3, 1, 1, 11003)
    x, dy = random(5, shape, shape, scale=4.0)
    apart = run_kernel(f"{name}_fwd", {"x": x}, {"y": shape}, **params)["y"]
    assert np.array_equal(run_kernel(f"{name}_fwd", {"x": x}, {"y": shape}, alias={"y": "x"}, **params)["y"], apart)
    inputs = {"dy": dy, saved: {"x": x, "y": apart}[saved]}
    back = run_kernel(f"{name}_bwd", inputs, {"dx": shape}, **params)["dx"]
    for place in inputs:
        again = run_kernel(f"{name}_bwd", inputs, {"dx": shape}, alias={"dx": place}, **params)["dx"]
        assert np.array_equal(again, back)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_edges_and_large_values(name):
    function, saved, params = ACTIVATIONS[name]
    # where a derivative jumps torch's choice depends on the function, so the jumps themselves are left out
    values = [-1e30, -200, -90, -4, -2.999, -1e-30, 1e-30, 2.999, 3.001, 5.999, 6.001, 90, 200, 1e30]
    x = np.array(values, np.float32).reshape(1, 1, 1, -1)
    dy = np.ones_like(x)
    y, (dx,) = torch64(function, x, dy=dy)
    got = run_kernel(f"{name}_fwd", {"x": x}, {"y": x.shape}, **params)["y"]
    within(got, y, 8 * eps(np.float32) * (1e-30 + np.abs(y)) + (1e-38 if name != "hardswish" else 1e-6))
    kept = {"x": x, "y": got}[saved]
    back = run_kernel(f"{name}_bwd", {"dy": dy, saved: kept}, {"dx": x.shape}, **params)["dx"]
    within(back, dx, 4e-6)


@pytest.mark.parametrize(
    ("name", "at", "want"), [("relu", 0, 0), ("relu6", 0, 0), ("relu6", 6, 0), ("hardswish", -3, 0)]
)
def test_derivative_at_a_jump(name, at, want):
    x = np.full((1, 1, 1, 3), at, np.float32)
    saved = "x" if name == "hardswish" else "y"
    dx = run_kernel(f"{name}_bwd", {"dy": np.ones_like(x), saved: x}, {"dx": x.shape})["dx"]
    assert np.all(dx == want)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_nan_stays(name, dtype):
    _, saved, params = ACTIVATIONS[name]
    x = np.array([1, np.nan, -1], dtype).reshape(1, 1, 1, 3)
    got = run_kernel(f"{name}_fwd", {"x": x}, {"y": x.shape}, dtype, **params)["y"]
    assert np.isnan(got).tolist() == np.isnan(x).tolist()
    dy = np.array([np.nan, 1, 1], dtype).reshape(x.shape)
    kept = np.abs(x) / 2 if saved == "y" else x
    back = run_kernel(f"{name}_bwd", {"dy": dy, saved: kept}, {"dx": x.shape}, dtype, **params)["dx"]
    assert np.isnan(back[..., 0]).all()
    assert not np.isnan(back[..., 2]).any()


@pytest.mark.parametrize("slope", [0.0, 1.0, 2.5])
def test_leaky_relu_of_other_slopes(slope):
    x, dy = random(3, (2, 1, 1, 50), (2, 1, 1, 50))
    y, (dx,) = torch64(lambda t: nn.leaky_relu(t, slope), x, dy=dy)
    got = run_kernel("leaky_relu_fwd", {"x": x}, {"y": x.shape}, slope=slope)["y"]
    within(got, y, eps(np.float32) * np.abs(y))
    back = run_kernel("leaky_relu_bwd", {"dy": dy, "y": got}, {"dx": x.shape}, slope=slope)["dx"]
    within(back, dx, eps(np.float32) * np.abs(dx))


def test_negative_parameters_are_refused():
    x = np.ones((1, 1, 1, 2), np.float32)
    with pytest.raises(ValueError, match=r"leaky_relu_fwd of layer 'layer1': slope must be >= 0, not -0\.1"):
        run_kernel("leaky_relu_fwd", {"x": x}, {"y": x.shape}, slope=-0.1)
    with pytest.raises(ValueError, match="alpha must be >= 0"):
        run_kernel("elu_bwd", {"dy": x, "y": x}, {"dx": x.shape}, alpha=-1.0)
