"""Kernels that compute in float32 on half storage: one rounding at the end, padded channels left alone."""

import tracemalloc

import numpy as np
import pytest

from trc_runtime.cpu.session import CpuSession
from trc_runtime.schema.dtypes import Precision
from trc_runtime.schema.graphs import GraphId
from trc_runtime.schema.plan import Initial
from trc_runtime.schema.regions import Region

from .halves import as_stored, one_rounding
from .plans import HALVES, PlanBuilder, run_kernel
from .reference import random, within

KINDS = ["fp16", "bf16"]
SHAPES = [(1, 1, 1, 1), (3, 1, 1, 33), (2, 5, 3, 8), (4, 7, 9, 13), (300, 1, 1, 520), (1, 1, 1, 20_001)]
FORWARD = {
    **{name: {} for name in ("relu", "tanh", "silu", "relu6", "hardswish", "sigmoid")},
    "leaky_relu": {"slope": 0.1},
    "elu": {"alpha": 0.7},
}
BY_INPUT = ("silu", "hardswish")
R = Region


def draw(kind, shape, seed, count=1, spread=3.0):
    return [as_stored(spread * a, kind) for a in random(seed, *[shape] * count, dtype=np.float64)]


def as_float32_rounded(kind, name, inputs, outputs, **options):
    """What the float32 kernel gives, rounded; `outputs` that the test compares are the half ones."""
    got = run_kernel(name, inputs, outputs, np.float32, **options)
    return {n: as_stored(a, kind) if a.dtype == np.float32 else a for n, a in got.items()}


def check(kind, name, inputs, outputs, aliases=(), **options):
    want = as_float32_rounded(kind, name, inputs, outputs, **options)
    for alias in ({}, *aliases):
        got = run_kernel(name, inputs, outputs, kind, alias=alias, **options)
        for n in outputs:
            assert np.array_equal(got[n], want[n], equal_nan=True), (name, n, alias)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", FORWARD)
def test_activations(name, shape, kind):
    x, dy, saved = draw(kind, shape, 1, 3)
    x.reshape(-1)[:1] = np.nan if x.size > 1 else 6
    check(kind, f"{name}_fwd", {"x": x}, {"y": shape}, [{"y": "x"}], **FORWARD[name])
    operand = "x" if name in BY_INPUT else "y"
    places = [{"dx": "dy"}, {"dx": operand}]
    check(kind, f"{name}_bwd", {"dy": dy, operand: saved}, {"dx": shape}, places, **FORWARD[name])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_add_copy_dropout(shape, kind):
    a, b = draw(kind, shape, 2, 2)
    check(kind, "add_fwd", {"a": a, "b": b}, {"y": shape}, [{"y": "a"}, {"y": "b"}])
    check(kind, "copy", {"x": a}, {"y": shape})
    options = {"scalars": {"seed": [7, 0], "iteration": 3}, "p": 0.3, "stream": 5}
    check(kind, "dropout_fwd", {"x": a}, {"y": shape, "mask": shape}, [{"y": "x"}], **options)
    mask = np.random.default_rng(1).integers(0, 2, shape).astype(np.int8)
    check(kind, "dropout_bwd", {"dy": a, "mask": mask}, {"dx": shape}, [{"dx": "dy"}], p=0.3)


@pytest.mark.parametrize("kind", KINDS)
def test_maps_and_rows(kind):
    """Of both, channels are padded to 8 in memory."""
    for shape in ((3, 5, 4, 3), (2, 1, 1, 7), (1, 3, 3, 8), (4, 2, 2, 1)):
        row = (shape[0], 1, 1, int(np.prod(shape[1:])))
        (x,) = draw(kind, shape, 3)
        places = [{"y": "x"}] if shape[3] == 8 else []
        check(kind, "flatten_fwd", {"x": x}, {"y": row}, places)
        dy = x.reshape(row)
        got = run_kernel("flatten_bwd", {"dy": dy}, {"dx": shape}, kind)
        assert np.array_equal(got["dx"], x)
        wide = (*shape[:3], shape[3] + 6)
        check(kind, "channel_padding_fwd", {"x": x}, {"y": wide})
        (dy,) = draw(kind, wide, 4)
        check(kind, "channel_padding_bwd", {"dy": dy}, {"dx": shape})


@pytest.mark.parametrize("dtype", [np.float32, np.float64, *KINDS], ids=str)
def test_channel_padding(dtype):
    (x,) = draw(dtype, (2, 3, 4, 5), 1)
    y = run_kernel("channel_padding_fwd", {"x": x}, {"y": (2, 3, 4, 9)}, dtype)["y"]
    assert np.array_equal(y[..., :5], x)
    assert not y[..., 5:].any()
    assert np.array_equal(run_kernel("channel_padding_bwd", {"dy": y}, {"dx": x.shape}, dtype)["dx"], x)
    with pytest.raises(ValueError, match="pads"):
        run_kernel("channel_padding_fwd", {"x": x}, {"y": (2, 3, 4, 3)}, dtype)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weight_bytes", [1 << 23, 4000], ids=["whole", "pieces"])
@pytest.mark.parametrize(("samples", "into", "out"), [((1, 1, 1), 1, 1), ((7, 1, 1), 33, 65), ((5, 3, 2), 24, 10)])
def test_fully_connected(samples, into, out, weight_bytes, kind, monkeypatch):
    """On maps too, read in the order of memory; bias and weight gradient in float32."""
    monkeypatch.setattr("trc_runtime.cpu.kernels.dense.WEIGHT_BYTES", weight_bytes)
    n, h, w = samples
    inputs = into * h * w
    (x,), (weight,), (dy,) = (draw(kind, s, i) for i, s in enumerate(((n, h, w, into), (out, 1, 1, inputs),
                                                                      (n, 1, 1, out))))  # fmt: skip
    (bias,) = random(9, (1, 1, 1, out))
    x2, w2, dy2 = (a.astype(np.float64).reshape(a.shape[0], -1) for a in (x, weight, dy))

    def bound(terms, size, value):
        off = (terms + 2) * 2.0**-23 * size
        return off + one_rounding(kind, np.abs(value) + off)

    y = x2 @ w2.T + bias.reshape(-1)
    got = run_kernel("fc_fwd", {"x": x, "weight": weight, "bias": bias}, {"y": (n, 1, 1, out)}, kind)["y"]
    within(got.reshape(n, out), y, bound(inputs + 1, np.abs(x2) @ np.abs(w2).T + np.abs(bias).reshape(-1), y))
    dx = dy2 @ w2
    got = run_kernel("fc_bwd_data", {"dy": dy, "weight": weight}, {"dx": x.shape}, kind)["dx"]
    within(got.reshape(dx.shape), dx, bound(out, np.abs(dy2) @ np.abs(w2), dx))
    dw = dy2.T @ x2
    got = run_kernel("fc_bwd_weight", {"dy": dy, "x": x}, {"dweight": weight.shape}, kind)["dweight"]
    within(got.reshape(dw.shape), dw, (n + 2) * 2.0**-23 * (np.abs(dy2).T @ np.abs(x2)))
    got = run_kernel("fc_bwd_bias", {"dy": dy}, {"dbias": (1, 1, 1, out)}, kind)["dbias"]
    within(got.reshape(-1), dy2.sum(0), (n + 2) * 2.0**-23 * np.abs(dy2).sum(0))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(1, 1, 1, 2), (9, 1, 1, 10), (65, 1, 1, 333)])
def test_softmax(shape, kind):
    (logits,) = draw(kind, shape, 5)
    label = np.random.default_rng(2).integers(0, shape[3], (shape[0], 1, 1, 1)).astype(np.int32)
    one = (1, 1, 1, 1)
    results = dict.fromkeys(("loss", "top1", "top5"), one)
    given = {"logits": logits, "label": label}
    options = {"label_smoothing": 0.1}
    for name, more in (("softmax_ce_fwd", {"probs": shape}), ("softmax_ce_infer", {"predicted": label.shape})):
        want = run_kernel(name, given, {**more, **results}, np.float32, **options)
        got = run_kernel(name, given, {**more, **results}, kind, **options)
        assert all(np.array_equal(got[n], want[n]) for n in want)
    probs = run_kernel("softmax_ce_fwd", given, {"probs": shape, **results}, np.float32, **options)["probs"]
    check(kind, "softmax_ce_bwd", {"probs": probs, "label": label}, {"dlogits": shape}, scalars={"scaling": 1024.0},
          label_smoothing=0.1)  # fmt: skip


# ---------------------------------------------------------------- ranges and input


def weights(precision):
    """A first convolution of 3 real channels, a deep one and an fc, with half copies and half gradients."""
    b = PlanBuilder(precision=precision)
    shapes = {"FC_WEIGHT": (5, 1, 1, 33), "FIRST_CONV": (6, 3, 3, 4), "DEEP_CONV": (9, 3, 3, 6)}
    for name, shape in shapes.items():
        channels = 3 if name == "FIRST_CONV" else None
        initial = Initial("kaiming_uniform", fan=20)
        b.tensor(f"{name}.weight", R[f"W_{name}"], shape, initial=initial, channels=channels)
        b.tensor(f"{name}.weight.half", R[f"A_{name}"], shape, channels=channels)
        if name != "FC_WEIGHT":
            b.tensor(f"{name}.weight.grad", R[f"G_{name}"], shape, channels=channels)
            b.tensor(f"{name}.weight.grad_half", R[f"G_{name}_FP16"], shape, channels=channels)
    ranges = {"source": (R.W_FC_WEIGHT, R.W_DEEP_CONV)}, {"target": (R.A_FC_WEIGHT, R.A_DEEP_CONV)}
    b.node("cast_range", GraphId.CAST_MAIN_FP32_TO_FP16, reads=ranges[0], writes=ranges[1])
    ranges = {"source": (R.G_DEEP_CONV_FP16, R.G_DEEP_CONV_FP16)}, {"target": (R.G_DEEP_CONV, R.G_DEEP_CONV)}
    b.node("cast_range", GraphId.CAST_DEEP_GRAD_FP16_TO_FP32, reads=ranges[0], writes=ranges[1])
    b.step("cast", [0], [GraphId.CAST_MAIN_FP32_TO_FP16])
    b.step("widen", [0], [GraphId.CAST_DEEP_GRAD_FP16_TO_FP32])
    return b.build()


@pytest.mark.parametrize("kind", KINDS)
def test_ranges_are_cast_both_ways(kind):
    plan = weights(HALVES[kind])
    session = CpuSession(plan)
    session.initialise()
    names = ("FC_WEIGHT", "FIRST_CONV", "DEEP_CONV")
    before = {n: session.read(f"{n}.weight") for n in names}
    assert before["FIRST_CONV"].shape == (6, 3, 3, 3)
    session.run("cast", 0)
    for n in names:
        assert np.array_equal(session.read(f"{n}.weight"), before[n])
        assert np.array_equal(session.read(f"{n}.weight.half"), as_stored(before[n], kind))
    (grad,) = random(1, (9, 3, 3, 6))
    grad[0, 0, 0, :2] = (np.inf, np.nan)
    session.write("DEEP_CONV.weight.grad_half", grad)
    session.run("widen", 0)
    assert np.array_equal(session.read("DEEP_CONV.weight.grad"), as_stored(grad, kind), equal_nan=True)
    assert not session.read("FIRST_CONV.weight.grad").any()


def test_channels_that_are_not_real_are_zero_and_not_shown():
    """The first values do not depend on them either."""
    aligned, plain = CpuSession(weights(Precision.AMP_FP16)), PlanBuilder()
    aligned.initialise()
    plain.tensor("FIRST_CONV.weight", R.W_FIRST_CONV, (6, 3, 3, 3), initial=Initial("kaiming_uniform", fan=20))
    want = CpuSession(plain.build())
    want.initialise()
    name = "FIRST_CONV.weight"
    assert np.array_equal(aligned.read(name), want.read(name))
    tensor = next(t for t in aligned.plan.tensors if t.name == name)
    size = 6 * 9 * 4
    memory = aligned.arena[tensor.offset : tensor.offset + 4 * size].view(np.float32).reshape(6, 3, 3, 4)
    assert not memory[..., 3].any()
    aligned.write(name, np.full((6, 3, 3, 3), 2.0))
    assert (memory[..., :3] == 2).all()
    assert not memory[..., 3].any()
    with pytest.raises(ValueError, match=r"has the shape \(6, 3, 3, 3\), the given array \(6, 3, 3, 4\)"):
        aligned.write(name, np.zeros((6, 3, 3, 4)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("channels", "real"), [(4, 3), (4, None), (1, None), (5, None)])
def test_staging_shows_float32_and_real_channels(channels, real, kind):
    b = PlanBuilder(precision=HALVES[kind])
    columns = tuple((n, 5, 3) for n in (4, 2, 4, 2, 3, 1))
    b.tensor("label_a", R.I_A_LABEL, *((n, 1, 1, 1) for n, _, _ in columns))
    b.tensor("data_a", R.I_A_DATA, *((*c, channels) for c in columns), channels=real)
    b.node("h2d_copy", GraphId.TRANSFER_A, writes={"range": (R.I_A_LABEL, R.I_A_DATA)}, buffer="A")
    b.step("transfer_a", range(6), [GraphId.TRANSFER_A])
    session = CpuSession(b.build())
    session.arena[:] = 0xFF
    for column, (n, h, w) in enumerate(columns):
        labels, images = session.staging("A", column)
        assert images.shape == (n, h, w, real or channels)
        assert images.dtype == np.float32
        labels[:] = range(n)
        images[...] = random(column, images.shape)[0]
        kept = images.copy()
        session.run("transfer_a", column)
        assert np.array_equal(images, kept)
        if column == 0:
            assert np.array_equal(session.read("data_a"), as_stored(images, kind))
            tensor = next(t for t in session.plan.tensors if t.name == "data_a")
            padded = -(-channels // 4) * 4
            raw = session.arena[tensor.offset : tensor.offset + 2 * n * h * w * padded].view(np.uint16)
            if real:
                assert not raw.reshape(n, h, w, padded)[..., real:].any()
    assert np.array_equal(session.read("label_a").reshape(-1)[:1], [0])


def test_reading_and_writing_half_tensors():
    b = PlanBuilder(precision=Precision.AMP_BF16)
    b.tensor("a.weight.half", R.A_FC_WEIGHT, (3, 1, 1, 5), initial=Initial("constant", value=1.5))
    session = CpuSession(b.build())
    session.initialise()
    value = session.read("a.weight.half")
    assert value.dtype == np.float32
    assert (value == 1.5).all()
    session.write("a.weight.half", np.full((3, 1, 1, 5), 1.01))
    assert np.array_equal(session.read("a.weight.half"), as_stored(np.full((3, 1, 1, 5), 1.01), "bf16"))
    session.write("a.weight.half", np.full((3, 1, 1, 5), 256))
    with pytest.raises(ValueError, match="of type bf16: the given int64 values do not fit this float type exactly"):
        session.write("a.weight.half", np.full((3, 1, 1, 5), 257))


@pytest.mark.parametrize("kind", KINDS)
def test_replay_allocates_nothing_of_the_size_of_a_tensor(kind):
    b = PlanBuilder(precision=HALVES[kind])
    shape = (8, 32, 32, 40)
    for name in ("x", "y", "dy", "dx"):
        b.tensor(name, R.F_FEATURE_FP16, shape)
    for name in ("scale", "shift"):
        b.tensor(name, R.T_TEMP_FP16, (1, 1, 1, 40))
    for name in ("gamma", "saved_mean", "saved_invstd", "dgamma", "dbeta"):
        b.tensor(name, R.T_TEMP_FP32, (1, 1, 1, 40))
    b.tensor("pooled", R.F_FEATURE_FP16, (8, 16, 16, 40))
    b.tensor("mask", R.S_MASK, (8, 16, 16, 40))
    norm = {n: n for n in ("x", "scale", "shift")}
    window = {"kernel": 2, "stride": 2, "padding": 0}
    b.node("materialise", reads=norm, writes={"y": "y"}, act="relu")
    saved = {n: n for n in ("gamma", "saved_mean", "saved_invstd")}
    b.node(
        "norm_bwd", reads={"dy": "dy", **norm, **saved}, writes={n: n for n in ("dgamma", "dbeta", "dx")}, act="relu6"
    )
    b.node("add_fwd", reads={"a": "x", "b": "dy"}, writes={"y": "y"})
    b.node("max_pool_fwd", reads={"x": "x"}, writes={"y": "pooled", "mask": "mask"}, **window)
    b.node("max_pool_bwd", reads={"dy": "pooled", "mask": "mask"}, writes={"dx": "dx"}, **window)
    b.node("avg_pool_bwd", reads={"dy": "pooled"}, writes={"dx": "dx"}, **window)
    b.step("step", [0], [GraphId.DEEP_FWD_BWD])
    session = CpuSession(b.build())
    for _ in range(2):
        session.run("step", 0)
    tracemalloc.start()
    session.run("step", 0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000  # a tensor has 655 KB; what remains are views and NumPy's own buffers
