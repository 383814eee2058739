from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from trc_runtime.schema.config import (
    WSD,
    Constant,
    CosineAnnealing,
    CosineWarmRestarts,
    Exponential,
    MultiStep,
    Polynomial,
    Schedule,
    StepDecay,
)
from trc_runtime.train.schedules import ScheduleError, fit_table, rate_table

EPOCHS, STEPS = 12, 7
ALL: list[Schedule] = [
    Constant(),
    CosineAnnealing(),
    Polynomial(),
    StepDecay(step_size=3),
    MultiStep(milestones=(2, 5, 9)),
    Exponential(),
    WSD(),
    CosineWarmRestarts(first_cycle=2, cycle_factor=2),
]


def _named(schedule: Schedule) -> str:
    return type(schedule).__name__


def _changed(schedule: Schedule, **values: Any) -> Schedule:
    from dataclasses import replace

    return replace(schedule, **values)


@pytest.mark.parametrize("schedule", ALL, ids=_named)
@pytest.mark.parametrize("by", ["step", "epoch"])
@pytest.mark.parametrize("warmup", [0, 2, 1.5])
def test_what_all_share(schedule: Schedule, by: str, warmup: float) -> None:
    rates = rate_table(_changed(schedule, by=by, warmup=warmup, warmup_start_lr=0.02), EPOCHS, STEPS)
    assert rates.shape == (EPOCHS * STEPS,)
    assert rates.dtype == np.float64
    assert np.isfinite(rates).all()
    assert (rates[:-STEPS] > 0).all()
    if by == "epoch":
        per_epoch = rates.reshape(EPOCHS, STEPS)
        assert (per_epoch == per_epoch[:, :1]).all()
    if warmup:
        length = round(warmup * STEPS) if by == "step" else math.ceil(warmup) * STEPS
        rising = rates[:length]
        assert (np.diff(rising) >= 0).all()
        assert rising[0] > 0.02  # the first step learns
        assert rising[-1] == pytest.approx(0.1)
        # after the warm-up the schedule runs as if the time had begun there
        if not isinstance(schedule, MultiStep):
            rest = rate_table(_changed(schedule, by=by), 1, EPOCHS * STEPS - length) if by == "step" else None
            if rest is not None and isinstance(schedule, CosineAnnealing | Polynomial | WSD | Constant):
                np.testing.assert_allclose(rates[length:], rest)


def test_warm_up_by_step_and_by_epoch() -> None:
    by_step = rate_table(Constant(base_lr=1.0, warmup=2, warmup_start_lr=0.5), 3, 4)
    np.testing.assert_allclose(by_step, [0.5 + 0.5 * min((s + 1) / 8, 1) for s in range(12)])
    by_epoch = rate_table(Constant(base_lr=1.0, warmup=2, by="epoch"), 3, 4)
    np.testing.assert_allclose(by_epoch, np.repeat([0.5, 1.0, 1.0], 4))
    longer = rate_table(Constant(base_lr=1.0, warmup=10), 2, 5)  # the run ends within the warm-up
    np.testing.assert_allclose(longer, np.arange(1, 11) / 50)


# ---------------------------------------------------------------- PyTorch, where it has the schedule


def _torch_rates(make: Any, count: int) -> list[float]:
    torch = pytest.importorskip("torch")
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scheduler = make(torch.optim.lr_scheduler, optimizer)
    rates: list[float] = []
    for _ in range(count):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


TOTAL = EPOCHS * STEPS


@pytest.mark.parametrize(
    ("schedule", "make", "by_epoch"),
    [
        (CosineAnnealing(eta_min=1e-3), lambda t, o: t.CosineAnnealingLR(o, TOTAL, 1e-3), False),
        # by epoch, the last epoch has eta: T_max is one less than the epochs
        (CosineAnnealing(eta_min=1e-3, by="epoch"), lambda t, o: t.CosineAnnealingLR(o, EPOCHS - 1, 1e-3), True),
        (Polynomial(power=2.0, end_lr=0.0), lambda t, o: t.PolynomialLR(o, TOTAL + 1, 2.0), False),
        (StepDecay(step_size=5, gamma=0.3), lambda t, o: t.StepLR(o, 5, 0.3), True),
        (MultiStep(milestones=(2, 3, 8), gamma=0.5), lambda t, o: t.MultiStepLR(o, [2, 3, 8], 0.5), True),
        (Exponential(gamma=0.8), lambda t, o: t.ExponentialLR(o, 0.8), True),
        (Constant(), lambda t, o: t.ConstantLR(o, 1.0, 1), True),
        (
            CosineWarmRestarts(first_cycle=2, cycle_factor=2, eta_min=1e-3),
            lambda t, o: t.CosineAnnealingWarmRestarts(o, 2 * STEPS, 2, 1e-3),
            False,
        ),
        (
            CosineWarmRestarts(first_cycle=3, cycle_factor=1, eta_min=1e-3, by="epoch"),
            lambda t, o: t.CosineAnnealingWarmRestarts(o, 3, 1, 1e-3),
            True,
        ),
        (WSD(stable=0.0), lambda t, o: t.LinearLR(o, 1.0, 0.0, TOTAL), False),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_against_pytorch(schedule: Schedule, make: Any, by_epoch: bool) -> None:
    ours = rate_table(schedule, EPOCHS, STEPS)
    theirs = _torch_rates(make, EPOCHS if by_epoch else TOTAL)
    np.testing.assert_allclose(ours[:: STEPS if by_epoch else 1], theirs, rtol=1e-9, atol=1e-12)


def test_wsd_is_flat_then_linear() -> None:
    rates = rate_table(WSD(base_lr=1.0, stable=0.5, end_lr=0.2), 2, 10)
    np.testing.assert_allclose(rates, [1.0] * 10 + [1.0 - 0.8 * d / 10 for d in range(10)])


def test_milestones_and_decays_look_at_epochs_whatever_the_mode() -> None:
    for schedule in (StepDecay(step_size=2), MultiStep(milestones=(2, 4)), Exponential()):
        a, b = (rate_table(_changed(schedule, by=by), 6, 5) for by in ("step", "epoch"))
        np.testing.assert_array_equal(a, b)
    # milestones are absolute, step decay counts from the end of the warm-up
    rates = rate_table(MultiStep(milestones=(2,), warmup=1), 4, 2)
    np.testing.assert_allclose(rates[2:], [0.1, 0.1, 0.01, 0.01, 0.01, 0.01])
    rates = rate_table(StepDecay(step_size=2, warmup=1), 4, 2)
    np.testing.assert_allclose(rates[2:], [0.1, 0.1, 0.1, 0.1, 0.01, 0.01])


# ---------------------------------------------------------------- what is missing


@pytest.mark.parametrize(
    ("schedule", "epochs", "steps", "message"),
    [
        (CosineAnnealing(), None, 5, r"CosineAnnealing needs the number of epochs \(epochs=\)$"),
        (StepDecay(), 5, None, r"StepDecay needs the number of training samples \(train_samples=\)$"),
        (WSD(), None, None, "WSD needs the number of epochs .* and the number of training samples"),
        (Constant(warmup=1), 5, None, "Constant with a warm-up needs the number of training samples"),
        (Constant(), 0, 5, "at least one step"),
    ],
)
def test_errors_name_what_is_missing(schedule: Schedule, epochs: int | None, steps: int | None, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        rate_table(schedule, epochs, steps)


def test_a_constant_rate_needs_nothing() -> None:
    assert rate_table(Constant(base_lr=0.3), None, None).tolist() == [0.3]


def test_fitting_a_table_to_the_plan() -> None:
    assert fit_table(np.array([1.0, 2.0]), 4).tolist() == [1, 2, 2, 2]
    assert fit_table(np.array([1.0, 2.0, 2.0, 2.0]), 2).tolist() == [1, 2]
    with pytest.raises(ScheduleError, match="the run has 3 steps, the compiled rate table has room for 2"):
        fit_table(np.array([1.0, 2.0, 3.0]), 2)
