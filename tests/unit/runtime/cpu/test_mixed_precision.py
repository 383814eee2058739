"""Mixed precision as a whole: the loss scale, skipped steps, and networks compiled for it."""

import numpy as np
import pytest

import trc
from trc_runtime.cpu.session import CpuSession
from trc_runtime.data.dataset import Dataset, Split
from trc_runtime.schema.regions import Region, region_range

from .plans import PlanBuilder
from .reference import random

PRECISIONS = ["amp-fp16", "amp-bf16"]
BATCH = 6


def net():
    """Three input channels become four, five are no multiple of eight."""
    layers = (
        *(trc.conv(5, 3, 1, 1), trc.bn(), trc.relu(), trc.maxpool(3, 2, 1)),
        *(trc.cbr(8, 3, 1, 1), trc.dropout(0.1), trc.gap(), trc.fc(4)),
    )
    return trc.BluePrint(trc.seq(*layers))


def compiled(precision, planner="packed", **options):
    options = {
        "input": (9, 8, 3),
        "batch": BATCH,
        "val_batch": 4,
        "epochs": 2,
        "train_samples": 20,
        "val_samples": 7,
        **options,
    }
    return trc.compile(net(), precision=precision, planner=planner, **options)


def batch(seed, size=BATCH):
    (images,) = random(seed, (size, 9, 8, 3))
    return images, np.random.default_rng(seed).integers(0, 4, size).astype(np.int32)


def state_of(session):
    """All state that outlives a step, as bytes of the arena by tensor."""
    plan = session.plan
    return {
        t.name: session.arena[t.offset : t.offset + t.slot].tobytes() for t in plan.tensors if not t.region.transient
    }


# ---------------------------------------------------------------- the loss scale alone


def scale_session(scale, counter):
    b = PlanBuilder()
    b.scalar("scaling", float(scale))
    b.scalar("growth_counter", counter)
    b.scalar("has_nan", 0)
    names = ("scaling", "growth_counter")
    b.node("scale_update", updates={n: n for n in names}, scalars={"has_nan": "has_nan"})
    b.step("step", [0], [b.nodes[0].bucket])
    session = CpuSession(b.build())
    session.initialise()

    def step(nan=False):
        session.write("has_nan", [[[[int(nan)]]]])
        session.run("step", 0)
        return tuple(session.read(n).item() for n in names)

    return step


def test_the_scale_doubles_after_two_thousand_good_steps():
    step = scale_session(1024, 0)
    for n in range(1, 2000):
        assert step() == (1024, n)
    assert step() == (2048, 0)
    assert step() == (2048, 1)
    step = scale_session(1024, 1999)
    assert step(nan=True) == (512, 0)
    assert step() == (512, 1)


def test_the_scale_stays_within_bounds():
    step = scale_session(2.0**23, 1999)
    assert step() == (2.0**24, 0)
    step = scale_session(2.0**24, 1999)
    assert step() == (2.0**24, 0)
    step = scale_session(4, 7)
    assert [step(nan=True) for _ in range(4)] == [(2, 0), (1, 0), (1, 0), (1, 0)]


# ---------------------------------------------------------------- skipped steps


KEPT = (
    *region_range(Region.B_PREV_MEAN, Region.B_PREV_VAR),
    *region_range(Region.W_EQ_BIAS, Region.A_DEEP_CONV),
    *region_range(Region.M_BN_BIAS, Region.V_DEEP_CONV),
    Region.R_RESULT_ACCUMULATED,
)


@pytest.mark.parametrize("planner", ["packed", "regions"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_a_skipped_step_changes(precision, planner):
    exe = compiled(precision, planner)
    for n in range(3):
        assert not exe.step(*batch(n)).skipped
    session = exe.session
    before = state_of(session)
    numbers = ("iteration", "applied", "scaling", "growth_counter")
    old = {n: session.read(n).item() for n in numbers}
    assert (old["iteration"], old["applied"], old["growth_counter"]) == (3, 3, 3)
    labels, images = session.staging("A", 0)
    images[...], labels[:] = batch(9)
    images[2, 3, 4, 1] = np.inf
    session.run("transfer_a", 0)
    session.run("train_a", 0)
    after = state_of(session)
    changed = {n for n in before if before[n] != after[n]}
    kept = {t.name for t in session.plan.tensors if t.region in KEPT}
    assert {"conv1.weight", "conv1.weight.half", "conv1.weight.m", "bn1.running_mean", "accum_loss"} <= kept
    assert not changed & kept
    new = {n: session.read(n).item() for n in numbers}
    assert new == {"iteration": 4, "applied": 3, "scaling": old["scaling"] / 2, "growth_counter": 0}
    assert not exe.step(*batch(10)).skipped
    assert session.read("applied").item() == 4


def test_an_overflow_is_found_and_the_scale_recovers():
    """float16 ends at 65504: with too large a scale gradients are infinite, until it has shrunk."""
    exe = compiled("amp-fp16")
    exe.session.write("scaling", [[[[2.0**24]]]])
    skipped = 0
    while exe.step(*batch(1)).skipped:
        skipped += 1
        assert skipped < 24
    assert skipped > 3
    assert exe.session.read("scaling").item() == 2.0 ** (24 - skipped)
    assert exe.session.read("applied").item() == 1
    assert exe.session.read("growth_counter").item() == 1


# ---------------------------------------------------------------- networks


@pytest.mark.parametrize("precision", PRECISIONS)
def test_both_planner_modes_give_the_same_bytes(precision):
    one, two = compiled(precision), compiled(precision, "regions")
    for n in range(4):
        a, b = one.step(*batch(n)), two.step(*batch(n))
        assert a == b
    for t in one.session.plan.tensors:
        if not t.region.transient:
            assert np.array_equal(one.session.read(t.name), two.session.read(t.name), equal_nan=True), t.name


@pytest.mark.parametrize("precision", PRECISIONS)
def test_mixed_precision_starts_where_float32_does_and_stays_close(precision):
    half, single = compiled(precision), compiled("fp32")
    for t in single.session.plan.tensors:
        if t.name.endswith(".weight"):
            assert np.array_equal(half.tensors[t.name], single.tensors[t.name]), t.name
    unit = 2.0**-11 if precision == "amp-fp16" else 2.0**-8
    for n in range(5):
        a, b = half.step(*batch(n)), single.step(*batch(n))
        # a dozen roundings on the way, each of a unit, and the drift of the weights
        assert abs(a.loss - b.loss) <= 30 * (n + 1) * unit * abs(b.loss)
    scale = half.session.read("scaling").item()
    assert scale > 1
    raw = half.session.read("fc1.weight.grad")
    assert np.array_equal(half.tensors["fc1.weight.grad"], raw / np.float32(scale))
    working = half.session.read("conv1.weight.half")
    assert working.shape == half.tensors["conv1.weight"].shape == (5, 3, 3, 3)
    assert np.abs(working - half.tensors["conv1.weight"]).max() <= unit


@pytest.mark.parametrize("precision", PRECISIONS)
def test_training_evaluation_and_checkpoints(precision, tmp_path):
    images, labels = batch(1, 20)
    data = Dataset("noise", 4, Split(images, labels), Split(*batch(2, 7)))
    one = compiled(precision)
    result = one.run(data)
    assert np.isfinite(result.epochs[-1].train_loss)
    assert one.evaluate(data.val).samples == 7
    one.save_checkpoint(tmp_path / "a.safetensors")
    two = compiled(precision)
    two.load_checkpoint(tmp_path / "a.safetensors")
    assert one.evaluate(data.val) == two.evaluate(data.val)
    assert one.step(*batch(3)) == two.step(*batch(3))
    assert np.array_equal(one.tensors["conv1.weight"], two.tensors["conv1.weight"])
