"""Batch norm that is finished, applied and differentiated by separate nodes, against PyTorch in float64."""

import numpy as np
import pytest
import torch
import torch.nn.functional as nn

from trc_runtime.cpu.conv import engine

from .halves import KINDS, as_stored, compute_eps, is_half, one_rounding
from .plans import run_kernel
from .reference import random, within


@pytest.fixture(autouse=True, params=["numpy", "native"])
def engines(request):
    """Each test runs in both forms."""
    if request.param == "native" and not engine.native_available():
        pytest.skip("no C compiler here")
    with engine.using(request.param):
        yield


SHAPES = [(2, 1, 1, 1), (33, 1, 1, 65), (2, 5, 7, 3), (5, 13, 11, 8), (3, 40, 31, 24), (9, 2, 2, 515)]
ACTS = ["none", "relu", "relu6"]
EPS, MOMENTUM = 1e-5, 0.1
ROWS = ("gamma", "beta", "prev_mean", "prev_var")


def draw(shape, kind, seed):
    """x and dy as stored, and a norm's parameters in the master type."""
    x, dy, rows = random(seed, shape, shape, (4, shape[-1]), dtype=np.float64)
    master = np.float32 if is_half(kind) else kind
    parts = dict(zip(ROWS, (r.reshape(1, 1, 1, -1).astype(master) for r in rows), strict=True))
    parts["prev_var"] = np.abs(parts["prev_var"])
    return as_stored(2 * x + 0.7, kind), as_stored(dy, kind), parts


def stats(x, kind):
    c = (1, 1, 1, x.shape[-1])
    return run_kernel("bn_stats", {"x": x}, {"sum": c, "sumsq": c}, kind)


def finalize(x, parts, kind, sums=None):
    c = (1, 1, 1, x.shape[-1])
    outputs = dict.fromkeys(("scale", "shift", "next_mean", "next_var", "saved_mean", "saved_invstd"), c)
    given = {"x": x, **(sums or stats(x, kind)), **parts}
    return run_kernel("bn_finalize", given, outputs, kind, eps=EPS, momentum=MOMENTUM)


def torch_act(x, act):
    return {"none": lambda t: t, "relu": nn.relu, "relu6": nn.relu6}[act](x)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_statistics_are_those_of_what_is_stored(shape, kind):
    x, _, parts = draw(shape, kind, 1)
    rows, c = x.size // shape[-1], shape[-1]
    wide = x.astype(np.float64).reshape(-1, c)
    sums = stats(x, kind)
    tight = compute_eps(kind) + rows * 2.0**-52
    within(sums["sum"].reshape(-1), wide.sum(0), tight * np.abs(wide).sum(0))
    within(sums["sumsq"].reshape(-1), (wide**2).sum(0), tight * (wide**2).sum(0))

    mean, var = (torch.tensor(parts[f"prev_{n}"].astype(np.float64).reshape(-1)) for n in ("mean", "var"))
    nn.batch_norm(torch.tensor(wide), mean, var, None, None, True, MOMENTUM, EPS)
    got = {n: a.reshape(-1).astype(np.float64) for n, a in finalize(x, parts, kind, sums).items()}
    # var = sumsq / rows - mean^2: each of the three is off by a few units of its own size
    size = (wide**2).mean(0) + wide.mean(0) ** 2
    off = 4 * tight * size
    unit = compute_eps(kind)
    within(got["next_mean"], mean.numpy(), 4 * tight * (1 + np.abs(wide).mean(0) + np.abs(mean.numpy())))
    within(got["next_var"], var.numpy(), 2 * off * rows / (rows - 1) + 4 * unit * (1 + var.numpy()))
    true_var = wide.var(0)
    invstd = 1 / np.sqrt(true_var + EPS)
    off_invstd = off / (true_var + EPS) * invstd + 4 * unit * invstd
    within(got["saved_invstd"], invstd, off_invstd)
    gamma, beta = (parts[n].reshape(-1).astype(np.float64) for n in ("gamma", "beta"))
    scale, shift = gamma * invstd, beta - wide.mean(0) * gamma * invstd
    off_scale = np.abs(gamma) * off_invstd + 4 * unit * np.abs(scale)
    within(got["scale"], scale, off_scale + one_rounding(kind, np.abs(scale) + off_scale))
    off_shift = np.abs(wide.mean(0)) * off_scale + 4 * tight * (np.abs(wide).mean(0) * np.abs(scale) + np.abs(beta))
    within(got["shift"], shift, off_shift + one_rounding(kind, np.abs(shift) + off_shift))


def test_constant_channels_and_single_rows():
    """A variance of zero stays zero though rounding may say otherwise."""
    x = np.full((3, 5, 5, 4), 0.1, np.float32)
    _, _, parts = draw(x.shape, np.float32, 1)
    got = finalize(x, parts, np.float32)
    assert np.isfinite(got["saved_invstd"]).all()
    assert (got["saved_invstd"] <= np.float32(1 / np.sqrt(EPS)) * 1.001).all()
    one = finalize(x[:1, :1, :1], parts, np.float32)
    assert np.array_equal(one["next_var"], parts["prev_var"])
    x[0, 0, 0, 0] = np.nan
    got = finalize(x, parts, np.float32)
    assert np.isnan(got["scale"][..., 0]).all()
    assert np.isfinite(got["scale"][..., 1:]).all()


def affine(x, scale, shift, kind):
    """x * scale + shift in the compute type, two roundings."""
    compute = np.float32 if is_half(kind) else kind
    return (x.astype(compute) * scale.astype(compute)).astype(compute) + shift.astype(compute)


def clamp(z, act):
    z = np.where(z < 0, np.zeros_like(z), z) if act != "none" else z
    return np.where(z > 6, np.full_like(z, 6), z) if act == "relu6" else z


def rows_of(shape, kind, seed, count=2):
    return [as_stored(3 * r, kind) for r in random(seed, *[(1, 1, 1, shape[-1])] * count, dtype=np.float64)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_applied_bit_by_bit(shape, act, kind):
    """Two roundings in the compute type and one to storage, in place or not."""
    x, shortcut, _ = draw(shape, kind, 2)
    x.reshape(-1)[:2] = (np.nan, np.inf)
    scale, shift, scale2, shift2 = rows_of(shape, kind, 3, 4)
    z = affine(x, scale, shift, kind)
    want = as_stored(clamp(z, act), kind)
    for alias in ({}, {"y": "x"}):
        given = {"x": x, "scale": scale, "shift": shift}
        got = run_kernel("materialise", given, {"y": shape}, kind, alias=alias, act=act)["y"]
        assert np.array_equal(got, want, equal_nan=True)
        given = {"x": x, "scale": scale, "bias": shift}
        got = run_kernel("affine_fwd", given, {"y": shape}, kind, alias=alias, master=("scale",), act=act)["y"]
        assert np.array_equal(got, want, equal_nan=True)
    for alias in ({}, {"y": "x"}, {"y": "shortcut"}):
        with np.errstate(invalid="ignore"):
            want = as_stored(clamp(z + shortcut, act), kind)
        given = {"x": x, "scale": scale, "shift": shift, "shortcut": shortcut}
        got = run_kernel("norm_add_act_fwd", given, {"y": shape}, kind, alias=alias, act=act)["y"]
        assert np.array_equal(got, want, equal_nan=True)
        given = {"x": x, "scale": scale, "bias": shift, "shortcut": shortcut}
        got = run_kernel("affine_add_act_fwd", given, {"y": shape}, kind, alias=alias, master=("scale",), act=act)["y"]
        assert np.array_equal(got, want, equal_nan=True)
        want = as_stored(clamp(z + affine(shortcut, scale2, shift2, kind), act), kind)
        given = {"x": x, "scale": scale, "shift": shift, "shortcut": shortcut,
                 "shortcut_scale": scale2, "shortcut_shift": shift2}  # fmt: skip
        got = run_kernel("norm_add_act_fwd", given, {"y": shape}, kind, alias=alias, act=act)["y"]
        assert np.array_equal(got, want, equal_nan=True)


def test_affine_may_leave_out_its_activation():
    x, _, _ = draw((2, 3, 3, 5), np.float32, 2)
    scale, shift = rows_of(x.shape, np.float32, 3)
    given = {"x": x, "scale": scale, "bias": shift}
    plain = run_kernel("affine_fwd", given, {"y": x.shape})["y"]
    assert np.array_equal(plain, run_kernel("affine_fwd", given, {"y": x.shape}, act="none")["y"])
    with pytest.raises(ValueError, match="knows the activations none, relu, relu6, not 'gelu'"):
        run_kernel("affine_fwd", given, {"y": x.shape}, act="gelu")


def backward(x, dy, parts, saved, act, kind, alias=None, dx=True):
    c = (1, 1, 1, x.shape[-1])
    given = {"dy": dy, "x": x, **{n: saved[n] for n in ("scale", "shift")}, "gamma": parts["gamma"],
             **{n: saved[n] for n in ("saved_mean", "saved_invstd")}}  # fmt: skip
    outputs = {"dgamma": c, "dbeta": c, **({"dx": x.shape} if dx else {})}
    return run_kernel("norm_bwd", given, outputs, kind, alias=alias, act=act)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_backward(shape, act, kind):
    """The mask as readers of the rounded value saw it; then PyTorch's formula on what that lets through."""
    x, dy, parts = draw(shape, kind, 4)
    saved = finalize(x, parts, kind)
    z = as_stored(affine(x, saved["scale"], saved["shift"], kind), kind)
    through = np.ones(shape, bool) if act == "none" else (z > 0) & ((z < 6) | (act == "relu"))
    g = np.where(through, dy, 0).astype(np.float64)
    c, rows = shape[-1], x.size // shape[-1]
    leaf = torch.tensor(x.astype(np.float64), requires_grad=True)
    gamma = torch.tensor(parts["gamma"].reshape(-1).astype(np.float64), requires_grad=True)
    beta = torch.zeros(c, dtype=torch.float64, requires_grad=True)
    nn.batch_norm(leaf.permute(0, 3, 1, 2), None, None, gamma, beta, True, 0.0, EPS).backward(
        torch.tensor(g).permute(0, 3, 1, 2)
    )
    got = backward(x, dy, parts, saved, act, kind)
    unit = compute_eps(kind)
    wide = x.astype(np.float64).reshape(-1, c)
    invstd = 1 / np.sqrt(wide.var(0) + EPS)
    # the saved statistics' own errors (see test_statistics), relative to a deviation
    size = ((wide**2).mean(0) + wide.mean(0) ** 2) * invstd**2
    spread = np.abs(wide).max(0) * invstd
    loose = unit * (16 * size + 16 + 8 * spread)
    total = np.abs(g).reshape(-1, c).sum(0)
    within(got["dbeta"].reshape(-1), beta.grad.numpy(), (unit + rows * 2.0**-52) * total)
    within(got["dgamma"].reshape(-1), gamma.grad.numpy(), loose * total * (1 + spread))
    want = leaf.grad.numpy()
    scale = np.abs(parts["gamma"].reshape(-1)) * invstd * (np.abs(g).max() + total / rows * (1 + spread) ** 2)
    bound = np.broadcast_to(loose * scale * (1 + spread), shape)
    within(got["dx"], want, bound + one_rounding(kind, np.abs(want) + bound))
    for place in ("dy", "x"):
        aliased = backward(x, dy, parts, saved, act, kind, alias={"dx": place})
        assert all(got[n].tobytes() == aliased[n].tobytes() for n in got)
    without = backward(x, dy, parts, saved, act, kind, dx=False)
    assert all(got[n].tobytes() == without[n].tobytes() for n in without)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_gradient_that_is_not_let_through_does_not_count(kind):
    """Even if it is NaN; one that is let through does."""
    x = as_stored(np.array([[1, -1], [1, 2], [-3, -1], [2, 0.5]]).reshape(4, 1, 1, 2), kind)
    one, zero = np.ones((1, 1, 1, 2), np.float32), np.zeros((1, 1, 1, 2), np.float32)
    saved = {"scale": one, "shift": zero, "saved_mean": zero, "saved_invstd": one}
    dy = as_stored(np.array([[1, np.nan], [1, 1], [np.nan, np.inf], [1, 1]]).reshape(4, 1, 1, 2), kind)
    got = backward(x, dy, {"gamma": one}, saved, "relu", kind)
    assert got["dbeta"].reshape(-1).tolist() == [3, 2]
    assert np.isfinite(got["dx"]).all()
    dy[0, 0, 0, 0] = np.nan
    got = backward(x, dy, {"gamma": one}, saved, "relu", kind)
    assert np.isnan(got["dbeta"].reshape(-1)[0])
    assert np.isnan(got["dx"][..., 0]).all()
    assert np.isfinite(got["dx"][..., 1]).all()


@pytest.mark.parametrize("kind", ["fp16", "bf16"])
def test_bn_in_half_precision(kind):
    """The materialised form: statistics and result against PyTorch's on what is stored."""
    shape = (5, 13, 11, 9)
    x, dy, parts = draw(shape, kind, 6)
    c = (1, 1, 1, shape[-1])
    outputs = {"y": shape, **dict.fromkeys(("next_mean", "next_var", "saved_mean", "saved_invstd"), c)}
    got = run_kernel("bn_fwd", {"x": x, **parts}, outputs, kind, eps=EPS, momentum=MOMENTUM)
    same = run_kernel("bn_fwd", {"x": x, **parts}, outputs, kind, eps=EPS, momentum=MOMENTUM, alias={"y": "x"})
    assert all(got[n].tobytes() == same[n].tobytes() for n in got)
    leaf = torch.tensor(x.astype(np.float64), requires_grad=True)
    gamma, beta = (torch.tensor(parts[n].reshape(-1).astype(np.float64), requires_grad=True) for n in ("gamma", "beta"))
    y = nn.batch_norm(leaf.permute(0, 3, 1, 2), None, None, gamma, beta, True, 0.0, EPS).permute(0, 2, 3, 1)
    y.backward(torch.tensor(dy.astype(np.float64)))
    want, small = y.detach().numpy(), 1e-5
    within(got["y"], want, small * (1 + np.abs(want)) + one_rounding(kind, np.abs(want) + small))
    given = {"dy": dy, "x": x, "gamma": parts["gamma"], **{n: got[n] for n in ("saved_mean", "saved_invstd")}}
    back = run_kernel("bn_bwd", given, {"dgamma": c, "dbeta": c, "dx": shape}, kind)
    want = leaf.grad.numpy()
    within(back["dx"], want, small * (1 + np.abs(want)) + one_rounding(kind, np.abs(want) + small))
    np.testing.assert_allclose(back["dgamma"].reshape(-1), gamma.grad.numpy(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(back["dbeta"].reshape(-1), beta.grad.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["fp16", np.float32], ids=str)
def test_threads_do_not_matter(kind, monkeypatch):
    """Several pieces of rows, by one thread and by three."""
    shape = (6, 50, 40, 24)
    x, dy, parts = draw(shape, kind, 8)
    results = []
    for threads in (1, 3):
        monkeypatch.setattr("trc_runtime.cpu.conv.team.thread_count", lambda n=threads: n)
        saved = finalize(x, parts, kind)
        results.append({**saved, **backward(x, dy, parts, saved, "relu", kind)})
    assert all(results[0][n].tobytes() == results[1][n].tobytes() for n in results[0])


@pytest.mark.parametrize("kind", [np.float32, np.float64, "fp16"])
def test_an_offset_moves_the_running_mean_alone(kind):
    """What a convolution has left out of x: as if it were there, but for the mean that is saved and the shift."""
    x, _, parts = draw((4, 3, 3, 5), kind, 11)
    (offset,) = random(12, (1, 1, 1, 5), dtype=np.float64)
    plain = finalize(x, parts, kind)
    moved = finalize(x, {**parts, "offset": offset.astype(plain["next_mean"].dtype)}, kind)
    for name, value in plain.items():
        more = MOMENTUM * offset if name == "next_mean" else 0
        np.testing.assert_allclose(moved[name], value + more, rtol=1e-6, atol=1e-6, err_msg=name)
