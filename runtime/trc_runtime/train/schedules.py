"""Learning rates as tables: one rate a step, computed before the first step.

Time is counted in steps. With T steps in all and W of them in the warm-up, the rate of step s is

- in the warm-up (s < W): start + (base - start) * (s + 1) / W, so that the first step already learns and the last
  one of the warm-up has the base rate;
- afterwards f(d, D), with d = s - W and D = T - W; the formulas f are the published ones
  (spec/training-facts.md 4.3) and are written at each function.

With `by="epoch"` all steps of epoch e share a rate: (e + 1) / warmup of the way in the warm-up, and f at the
epoch's first step afterwards. A warm-up of 1.5 epochs takes round(1.5 * steps) steps by step, and by epoch
ends with the first whole epoch.

The original's warm-up begins at s / W, which leaves its first epoch without learning when it counts by epoch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import singledispatch

import numpy as np
from numpy.typing import NDArray

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

Rates = NDArray[np.float64]
Steps = NDArray[np.int64]


class ScheduleError(ValueError):
    """A schedule that cannot be tabulated; the message names what is missing or does not fit."""


@dataclass(frozen=True)
class _Span:
    """The time after the warm-up, in steps: `d` of each step, `total` = D, `warmup` = W, `epoch` = steps an epoch."""

    d: Steps
    total: int
    warmup: int
    epoch: int
    by_epoch: bool


def rate_table(schedule: Schedule, epochs: int | None, steps_per_epoch: int | None) -> Rates:
    """The rate of each step, `epochs * steps_per_epoch` of them.

    A constant rate without warm-up needs neither number; its table has one entry then, which later steps share.
    ScheduleError names what else is unknown.
    """
    if epochs is None or steps_per_epoch is None:
        if isinstance(schedule, Constant) and schedule.warmup == 0:
            return np.array([schedule.base_lr])
        missing = [
            name
            for name, value in (
                ("the number of epochs (epochs=)", epochs),
                ("the number of training samples (train_samples=)", steps_per_epoch),
            )
            if value is None
        ]
        what = f"{type(schedule).__name__}{' with a warm-up' if isinstance(schedule, Constant) else ''}"
        raise ScheduleError(f"schedule {what} needs {' and '.join(missing)}")
    if epochs < 1 or steps_per_epoch < 1:
        raise ScheduleError(f"a schedule needs at least one step, not {epochs} epochs of {steps_per_epoch} steps")
    total, by_epoch = epochs * steps_per_epoch, schedule.by == "epoch"
    step = np.arange(total, dtype=np.int64)
    if by_epoch:
        at = step // steps_per_epoch
        warmup = min(math.ceil(schedule.warmup) * steps_per_epoch, total)
        way = np.minimum((at + 1) / schedule.warmup, 1.0) if schedule.warmup else np.ones(total)
        position = at * steps_per_epoch
    else:
        # The shares are of the full warm-up, also where the run ends before it does.
        length = round(schedule.warmup * steps_per_epoch)
        warmup = min(length, total)
        way = (step + 1) / length if length else np.ones(total)
        position = step
    start = schedule.warmup_start_lr
    table = start + (schedule.base_lr - start) * way
    if warmup < total:
        span = _Span(position[warmup:] - warmup, total - warmup, warmup, steps_per_epoch, by_epoch)
        table[warmup:] = _after(schedule, span)
    return table


@singledispatch
def _after(schedule: Schedule, span: _Span) -> Rates:
    raise ScheduleError(f"there is no formula for a schedule of type {type(schedule).__name__}")


@_after.register
def _(schedule: Constant, span: _Span) -> Rates:
    return np.full(len(span.d), schedule.base_lr)


def _cosine(low: float, high: float, progress: Rates) -> Rates:
    return low + (high - low) * (1 + np.cos(np.pi * progress)) / 2


@_after.register
def _(schedule: CosineAnnealing, span: _Span) -> Rates:
    # eta + (base - eta) (1 + cos(pi min(1, d / D'))) / 2; by epoch D' = D - one epoch, so that the last has eta
    length = max(span.total - (span.epoch if span.by_epoch else 0), 1)
    return _cosine(schedule.eta_min, schedule.base_lr, np.minimum(span.d / length, 1.0))


@_after.register
def _(schedule: Polynomial, span: _Span) -> Rates:
    # end + (base - end) (1 - min(1, d / (D + 1))) ** power
    left = 1 - np.minimum(span.d / (span.total + 1), 1.0)
    return schedule.end_lr + (schedule.base_lr - schedule.end_lr) * left**schedule.power


@_after.register
def _(schedule: StepDecay, span: _Span) -> Rates:
    # base * gamma ** floor(d / (size * epoch))
    return schedule.base_lr * schedule.gamma ** (span.d // (schedule.step_size * span.epoch)).astype(np.float64)


@_after.register
def _(schedule: MultiStep, span: _Span) -> Rates:
    # base * gamma ** (number of milestones <= epoch), epochs counted from the run's first
    epoch = (span.warmup + span.d) // span.epoch
    passed = np.searchsorted(np.array(schedule.milestones, np.int64), epoch, side="right")
    return schedule.base_lr * schedule.gamma ** passed.astype(np.float64)


@_after.register
def _(schedule: Exponential, span: _Span) -> Rates:
    # base * gamma ** floor(d / epoch)
    return schedule.base_lr * schedule.gamma ** (span.d // span.epoch).astype(np.float64)


@_after.register
def _(schedule: WSD, span: _Span) -> Rates:
    # base while d < floor(D * stable), then linear to end, which the step after the last would have
    stable = int(span.total * schedule.stable)
    decay = max(span.total - stable, 1)
    progress = np.clip((span.d - stable) / decay, 0.0, 1.0)
    return schedule.base_lr + (schedule.end_lr - schedule.base_lr) * progress


@_after.register
def _(schedule: CosineWarmRestarts, span: _Span) -> Rates:
    # a cosine in each cycle; cycle i is first_cycle * factor ** i epochs long
    progress = np.empty(len(span.d))
    begin, length = 0, schedule.first_cycle * span.epoch
    while begin < span.total:
        inside = (span.d >= begin) & (span.d < begin + length)
        progress[inside] = (span.d[inside] - begin) / length
        begin, length = begin + length, length * schedule.cycle_factor
    return _cosine(schedule.eta_min, schedule.base_lr, progress)


def fit_table(rates: Rates, size: int) -> Rates:
    """The table at the length that the plan has room for.

    Steps beyond a table use its last rate, so a longer room is filled with that; a shorter one must not lose a
    different rate (ScheduleError).
    """
    if len(rates) <= size:
        return np.concatenate([rates, np.full(size - len(rates), rates[-1])])
    if np.all(rates[size - 1 :] == rates[-1]):
        return rates[:size]
    raise ScheduleError(
        f"the run has {len(rates)} steps, the compiled rate table has room for {size}: compile with the epochs "
        "(epochs=) and training samples (train_samples=) of the run"
    )
