import re
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as nn

from trc_runtime.cpu.arena import ArenaError, allocate, format_bytes
from trc_runtime.cpu.registry import kernel, known_kinds, lookup
from trc_runtime.cpu.session import CpuSession, missing_kernels
from trc_runtime.rng import philox, stream_id, uniform_of
from trc_runtime.schema.config import Constant
from trc_runtime.schema.dtypes import Precision
from trc_runtime.schema.graphs import GraphId
from trc_runtime.schema.plan import Initial
from trc_runtime.schema.regions import Region

from .plans import PlanBuilder, mlp_plan
from .reference import DTYPES

R = Region

SIZES = (7, 33, 16, 5)


def fill(session, buffer, column, seed):
    labels, images = session.staging(buffer, column)
    rng = np.random.default_rng(seed)
    labels[:] = rng.integers(0, SIZES[-1], labels.shape)
    images[...] = rng.standard_normal(images.shape)
    session.run(f"transfer_{buffer.lower()}", column)
    return labels.copy(), images.copy()


def start(**options):
    session = CpuSession(mlp_plan(SIZES, (20, 13, 11), **options))
    session.initialise()
    return session


# ---------------------------------------------------------------- a network


@pytest.mark.parametrize("precision", [Precision.FP64, Precision.FP32])
def test_an_mlp_trains_as_in_torch(precision):
    session = start(precision=precision)
    leaves = {
        f"fc{i}.{leaf}": torch.tensor(session.read(f"fc{i}.{leaf}").astype(np.float64), requires_grad=True)
        for i in range(3)
        for leaf in ("weight", "bias")
    }
    weights, biases = ([t for n, t in leaves.items() if n.endswith(end)] for end in ("weight", "bias"))
    optimizer = torch.optim.AdamW(
        [{"params": weights, "weight_decay": 1e-2}, {"params": biases, "weight_decay": 0.0}], lr=1e-3
    )

    def loss_of(images, labels):
        x = torch.tensor(images.astype(np.float64)).reshape(len(images), -1)
        for i in range(3):
            x = nn.linear(x, leaves[f"fc{i}.weight"].reshape(SIZES[i + 1], SIZES[i]), leaves[f"fc{i}.bias"].reshape(-1))
            x = nn.relu(x) if i < 2 else x
        return nn.cross_entropy(x, torch.tensor(labels).long(), label_smoothing=0.1), x

    total = right = 0.0
    near = 1e-9 if precision is Precision.FP64 else 1e-4
    for n in range(30):
        column, step = ((0, "train_a"), (1, "train_last_a"), (2, "train_a"), (3, "train_last_a"))[n % 4]
        labels, images = fill(session, "A", column, n)
        session.run(step, column)
        optimizer.zero_grad()
        loss, logits = loss_of(images, labels)
        loss.backward()
        for name, leaf in leaves.items():
            grad = session.read(f"{name}.grad")
            assert np.linalg.norm(grad - leaf.grad.numpy()) <= near * leaf.grad.norm() + 1e-12
        optimizer.step()
        np.testing.assert_allclose(session.read("loss").item(), loss.item(), rtol=near)
        total += loss.item() * len(labels)
        right += (logits.argmax(1).numpy() == labels).sum()
    for name, leaf in leaves.items():
        np.testing.assert_allclose(session.read(name), leaf.detach().numpy(), rtol=100 * near, atol=100 * near)
    np.testing.assert_allclose(session.read("accum_loss").item(), total, rtol=near)
    assert session.read("accum_top1").item() == right
    session.run("clear_metrics", 0)
    assert session.read("accum_loss").item() == 0
    labels, images = fill(session, "A", 4, 99)
    session.run("infer_a", 4)
    loss, logits = loss_of(images, labels)
    np.testing.assert_allclose(session.read("loss").item(), loss.item(), rtol=100 * near)
    assert session.read("accum_loss").item() == pytest.approx(loss.item() * 11, rel=100 * near)


def test_a_step_with_nan_changes_nothing_but_the_iteration():
    session = start()
    fill(session, "A", 0, 1)
    session.run("train_a", 0)
    _, images = session.staging("A", 0)
    before = {t.name: session.read(t.name) for t in session.plan.tensors}
    images[3, 0, 0, 2] = np.nan
    session.run("transfer_a", 0)
    session.run("train_a", 0)
    assert session.read("has_nan").item() == 1
    assert session.read("iteration").item() == 2
    assert session.read("applied").item() == 1
    kept = [n for n in before if n.endswith((".weight", ".bias", ".m", ".v")) or n.startswith("accum_")]
    assert len(kept) == 3 * 6 + 3
    assert all(np.array_equal(before[n], session.read(n)) for n in kept)
    # inference accumulates though the flag is still up
    fill(session, "A", 4, 2)
    session.run("infer_a", 4)
    assert session.read("accum_loss").item() > before["accum_loss"].item()
    images[3, 0, 0, 2] = 0
    fill(session, "A", 0, 1)
    session.run("train_a", 0)
    assert session.read("has_nan").item() == 0
    assert session.read("applied").item() == 2


def test_two_sessions_share_nothing_and_agree_to_the_bit():
    one, two = start(dropout=0.3), start(dropout=0.3)
    for n in range(5):
        fill(one, "A", 0, n)
        one.run("train_a", 0)
    assert not np.array_equal(one.read("fc0.weight"), two.read("fc0.weight"))
    for n in range(5):
        fill(two, "A", 0, n)
        two.run("train_a", 0)
    for t in one.plan.tensors:
        assert np.array_equal(one.read(t.name), two.read(t.name)), t.name


def test_dropout_changes_with_the_iteration_and_the_layer():
    session = start(dropout=0.5)
    fill(session, "A", 0, 1)
    session.run("train_a", 0)
    first = session.read("dropout0.mask"), session.read("dropout1.mask")
    seed, stream = session.plan.config.seed, stream_id("dropout/dropout0")
    for n, e in ((0, 0), (19, 32), (7, 13)):
        assert first[0][n, 0, 0, e] == (uniform_of(philox(seed, (stream, 0, n, e // 4))[e % 4]) >= 0.5)
    session.run("train_a", 0)
    assert np.mean(first[0] == session.read("dropout0.mask")) < 0.7
    assert np.mean(first[0][..., :16] == first[1]) < 0.7


def test_replay_allocates_nothing_of_the_size_of_a_tensor():
    session = CpuSession(mlp_plan((128, 300, 500, 10), (100, 50, 50), dropout=0.2))
    session.initialise()
    session.run("train_a", 0)
    session.run("train_a", 0)
    tracemalloc.start()
    session.run("train_a", 0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # activations have 120 and 200 KB, the larger weights 150 and 600; what remains are views and NumPy's own buffers
    # for a mixed product (64 KB)
    assert peak < 100_000


# ---------------------------------------------------------------- initial values


@pytest.mark.parametrize("dtype", DTYPES)
def test_initial_values(dtype):
    b = PlanBuilder(precision=Precision.FP64 if dtype is np.float64 else Precision.FP32)
    shape = (256, 1, 1, 300)
    rules = {
        "uniform": Initial("kaiming_uniform", fan=300),
        "normal": Initial("kaiming_normal", fan=300),
        "trunc": Initial("trunc_normal", value=0.05),
        "ones": Initial("constant", value=1.0),
        "zeros": Initial("zeros"),
    }
    for name, rule in rules.items():
        b.tensor(f"{name}.weight", R.W_FC_WEIGHT, shape, initial=rule)
    b.tensor("other.weight", R.W_FC_WEIGHT, shape, initial=rules["uniform"])
    b.tensor("seed", R.S_SCALAR_INT32, (1, 1, 1, 2))
    plan = b.build()
    session = CpuSession(plan)
    session.arena[:] = 0xFF
    session.initialise()
    w = {n: session.read(f"{n}.weight").astype(np.float64) for n in [*rules, "other"]}
    n = w["uniform"].size
    bound = np.sqrt(6 / 300)
    assert -bound <= w["uniform"].min() < -0.999 * bound
    assert 0.999 * bound < w["uniform"].max() <= bound
    assert abs(w["uniform"].var() / (bound**2 / 3) - 1) < 0.02
    assert abs(w["normal"].std() / np.sqrt(2 / 300) - 1) < 0.02
    assert np.abs(w["trunc"]).max() <= 0.1
    assert abs(w["trunc"].std() / (0.05 * 0.8796) - 1) < 0.02  # sqrt(1 - 4 phi(2) / (2 Phi(2) - 1))
    assert abs(w["trunc"].mean()) < 5 * 0.05 / np.sqrt(n)
    assert (w["ones"] == 1).all()
    assert not w["zeros"].any()
    assert abs(np.corrcoef(w["uniform"].ravel(), w["other"].ravel())[0, 1]) < 5 / np.sqrt(n)
    words = philox(plan.config.seed, (stream_id("init/uniform.weight"), 0, 0, 1234 // 4))
    assert w["uniform"].ravel()[1234] == pytest.approx((2 * uniform_of(words[1234 % 4]) - 1) * bound, rel=1e-6)
    low, high = session.read("seed").ravel().view(np.uint32)
    assert int(high) << 32 | int(low) == plan.config.seed
    assert not any(session.arena[t.offset + t.slot - 16 : t.offset + t.slot].any() for t in plan.tensors)


def test_both_precisions_start_from_the_same_place():
    one, two = start(precision=Precision.FP32), start(precision=Precision.FP64)
    assert np.array_equal(one.read("fc0.weight"), two.read("fc0.weight").astype(np.float32))
    other = start(seed=1)
    assert not np.array_equal(one.read("fc0.weight"), other.read("fc0.weight"))


@pytest.mark.parametrize(
    ("initial", "message"),
    [(Initial("xavier"), "unknown initial rule 'xavier'"), (Initial("kaiming_normal"), "needs a fan of at least 1")],
)
def test_bad_rules_are_refused(initial, message):
    b = PlanBuilder()
    b.tensor("a.weight", R.W_FC_WEIGHT, (1, 1, 1, 4), initial=initial)
    with pytest.raises(ValueError, match=f"'a.weight'.*{message}"):
        CpuSession(b.build()).initialise()


# ---------------------------------------------------------------- reading and writing


def test_read_gives_a_copy_and_write_checks():
    session = start()
    copy = session.read("fc0.weight")
    copy[...] = 7
    assert not (session.read("fc0.weight") == 7).any()
    session.write("fc0.weight", copy.astype(np.float64))
    assert (session.read("fc0.weight") == 7).all()
    session.write("fc0.bias", np.full((1, 1, 1, 33), 2))
    assert (session.read("fc0.bias") == 2).all()
    session.write("iteration", np.array([[[[5.0]]]]))
    assert session.read("iteration").item() == 5
    for name, value, message in (
        ("fc0.weight", np.zeros((33, 7)), r"has the shape \(33, 1, 1, 7\), the given array \(33, 7\)"),
        ("iteration", [[[[0.5]]]], "do not fit this integer type"),
        ("iteration", [[[[1 << 40]]]], "do not fit this integer type"),
        ("iteration", np.array([[[[1 << 63]]]], np.uint64), "do not fit this integer type"),
        ("iteration", [[[[np.nan]]]], "do not fit this integer type"),
        ("lr", [[[[16777217]]]], "do not fit this float type"),
        ("lr", [[[[True]]]], "given array of bool"),
        ("lr", [[[["x"]]]], "given array of <U1"),
        ("fc0.wieght", copy, "has no tensor 'fc0.wieght'; did you mean fc0.weight"),
    ):
        with pytest.raises(ValueError, match=message):
            session.write(name, value)
    with pytest.raises(ValueError, match="no tensor 'nonsense_'"):
        session.read("nonsense_")


def test_masks_are_read_without_their_padding():
    b = PlanBuilder()
    b.tensor("d.mask", R.S_MASK, (2, 3, 3, 5))
    session = CpuSession(b.build())
    want = np.arange(90, dtype=np.int8).reshape(2, 3, 3, 5)
    session.write("d.mask", want)
    assert np.array_equal(session.read("d.mask"), want)
    assert np.array_equal(session.arena[:5].view(np.int8), want[0, 0, 0])
    assert session.arena[8] == 5


def test_staging_of_a_buffer_is_shared_by_its_columns():
    session = start()
    labels, images = session.staging("A", 0)
    assert (labels.shape, images.shape) == ((20,), (20, 1, 1, 7))
    assert (labels.dtype, images.dtype) == (np.int32, np.float32)
    small = session.staging("A", 1)
    assert small[1].shape == (13, 1, 1, 7)
    assert np.shares_memory(images, small[1])
    assert not np.shares_memory(images, session.staging("B", 0)[1])
    fill(session, "B", 0, 3)
    assert np.array_equal(session.read("data_b"), session.staging("B", 0)[1])
    assert not session.read("data_a").any()
    with pytest.raises(ValueError, match="buffers A and B, not 'C'"):
        session.staging("C", 0)
    with pytest.raises(ValueError, match="columns 0 to 5, not 6"):
        session.staging("A", 6)


# ---------------------------------------------------------------- errors


def test_steps_and_columns_are_checked():
    session = start()
    with pytest.raises(ValueError, match="has no step 'train'; it has transfer_a"):
        session.run("train", 0)
    with pytest.raises(ValueError, match="step 'train_a' does not run in variant v4; it runs in v0, v2"):
        session.run("train_a", 4)
    with pytest.raises(ValueError, match="columns 0 to 5, not -1"):
        session.run("train_a", -1)


def test_missing_kernels_are_named():
    b = PlanBuilder()
    b.tensor("a.x", R.F_FEATURE_FP32, (1, 1, 1, 4))
    b.node("attention_fwd", reads={"x": "a.x"}, writes={"y": "a.x"}, layer="head1")
    plan = b.build()
    assert [n.kind for n in missing_kernels(plan)] == ["attention_fwd"]
    with pytest.raises(ValueError, match="no kernel for attention_fwd of layer 'head1'"):
        CpuSession(plan)
    assert lookup("attention_fwd") is None


def test_an_atlas_that_does_not_fit_is_refused():
    plan = mlp_plan(SIZES, (20, 13, 11))
    row = list(plan.atlas[0])
    row[GraphId.OPTIMIZER.value] = -1
    session = CpuSession(replace(plan, atlas=(tuple(row), *plan.atlas[1:])))
    with pytest.raises(ValueError, match="step 'train_a' in variant v0 uses OPTIMIZER, but the atlas has no capture"):
        session.run("train_a", 0)
    row[GraphId.OPTIMIZER.value] = 0
    session = CpuSession(replace(plan, atlas=(tuple(row), *plan.atlas[1:])))
    with pytest.raises(ValueError, match="uses OPTIMIZER of 'train', the atlas's capture is another"):
        session.run("train_a", 0)


def test_a_missing_operand_is_named():
    b = PlanBuilder()
    b.tensor("a.x", R.F_FEATURE_FP32, (1, 1, 1, 4))
    b.node("fc_fwd", reads={"x": "a.x"}, writes={"y": "a.x"}, layer="fc1")
    b.step("s", [0], [GraphId.DEEP_FWD_BWD])
    with pytest.raises(ValueError, match="node fc_fwd of layer 'fc1': lacks the operand 'weight'"):
        CpuSession(b.build()).run("s", 0)


def test_a_tensor_of_another_variant_is_named():
    b = PlanBuilder()
    b.tensor("a.x", R.F_FEATURE_FP32, (1, 1, 1, 4), None, None, None, None, None)
    b.node("relu_fwd", reads={"x": "a.x"}, writes={"y": "a.x"}, layer="relu1")
    b.step("s", [0, 1], [GraphId.DEEP_FWD_BWD])
    session = CpuSession(b.build())
    session.run("s", 0)
    with pytest.raises(ValueError, match=r"uses 'a\.x', which does not exist in variant v1"):
        session.run("s", 1)


def test_the_arena_is_aligned_and_its_error_says_what_is_large():
    plan = mlp_plan((784, 1024, 512, 10), (200, 200, 200))
    memory = allocate(plan)
    assert memory.size == plan.total
    assert memory.ctypes.data % 256 == 0
    with pytest.raises(ArenaError) as error:
        allocate(plan, available=1 << 20)
    text = str(error.value)
    assert f"{plan.total} bytes" in text
    assert "available is 1.0 MiB (1048576 bytes)" in text
    assert re.search(r"largest regions: ([A-Z_]+ [\d.]+ MiB(, |\n)){5}", text)
    assert {f"{x}_FC_WEIGHT" for x in "WGMV"} <= set(text.splitlines()[1].split())
    assert "fc0.weight" in text
    assert isinstance(error.value, MemoryError)
    huge = replace(plan, total=1 << 60)
    with pytest.raises(ArenaError, match=r"needs 1048576\.0 TiB"):
        allocate(huge, available=None)
    assert [format_bytes(n) for n in (5, 1024, 3 << 29)] == ["5 B", "1.0 KiB", "1.5 GiB"]


def test_kernels_are_registered_once():
    with pytest.raises(ValueError, match="kind 'fc_fwd' has a CPU kernel already"):
        kernel("fc_fwd")(lambda node: lambda: None)
    assert {"fc_fwd", "adam_update", "softmax_ce_infer"} <= set(known_kinds())


def test_the_rate_of_a_plan_can_change_between_runs():
    plan = mlp_plan(SIZES, (20, 13, 11))
    session = CpuSession(replace(plan, config=replace(plan.config, schedule=Constant(base_lr=0.5))))
    session.initialise()
    session.write("lr_table", np.zeros((1, 1, 1, 4)))
    before = session.read("fc0.weight")
    fill(session, "A", 0, 1)
    session.run("train_a", 0)
    assert np.array_equal(before, session.read("fc0.weight"))
