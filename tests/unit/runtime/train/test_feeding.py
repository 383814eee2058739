from __future__ import annotations

import numpy as np
import pytest

from tests.unit.runtime.train.fakes import CLASSES, SHAPE, FakeSession, linear_plan
from trc_runtime.data.dataset import Dataset
from trc_runtime.data.synthetic import synthetic
from trc_runtime.schema.config import EMA
from trc_runtime.schema.plan import Plan
from trc_runtime.train.feeding import Session
from trc_runtime.train.metrics import EvalResult, TrainingResult
from trc_runtime.train.runner import Runner

Launch = tuple[str, int, str | None, int | None]


class Done:
    """A launch that is over."""

    def settle(self) -> None:
        pass


class LazySession(FakeSession):
    """Does what has been launched as late as it may: when a result is read, or a buffer is wanted that a launch reads.

    Of the two steps of a launch the transfer goes first: the step must not depend on it.
    """

    def __init__(self, poison: tuple[int, ...] = (), plan: Plan | None = None) -> None:
        super().__init__(linear_plan() if plan is None else plan, poison)
        self.launches: list[Launch] = []
        self.prepared: set[Launch] = set()
        self._waiting: list[Launch] = []

    def launch(self, step: str, column: int, beside: str | None = None, beside_column: int | None = None) -> Done:
        self.launches.append((step, column, beside, beside_column))
        self._waiting.append(self.launches[-1])
        return Done()

    def prepare(self, step: str, column: int, beside: str | None = None, beside_column: int | None = None) -> None:
        self.prepared.add((step, column, beside, beside_column))

    def _catch_up(self, count: int) -> None:
        for step, column, beside, beside_column in self._waiting[:count]:
            if beside is not None and beside_column is not None:
                super().run(beside, beside_column)
            super().run(step, column)
        del self._waiting[:count]

    def staging(self, buffer: str, column: int) -> tuple[np.ndarray, np.ndarray]:
        reads = f"transfer_{buffer.lower()}"
        last = [n for n, launch in enumerate(self._waiting) if reads in (launch[0], launch[2])]
        if last:
            self._catch_up(last[-1] + 1)
        return super().staging(buffer, column)

    def read(self, name: str) -> np.ndarray:
        self._catch_up(len(self._waiting))
        return super().read(name)

    def write(self, name: str, array: np.ndarray) -> None:
        self._catch_up(len(self._waiting))
        super().write(name, array)

    def run(self, step: str, column: int) -> None:
        self._catch_up(len(self._waiting))
        super().run(step, column)


@pytest.fixture(scope="module")
def data() -> Dataset:
    return synthetic(SHAPE, CLASSES, train=36, val=20)


def trained(session: Session, data: Dataset) -> tuple[TrainingResult, EvalResult, np.ndarray]:
    runner = Runner(linear_plan(), session)
    result = runner.run(data, 3)
    return result, runner.evaluate(data.val), session.read("fc1.weight")


@pytest.mark.parametrize("poison", [(), (3,), (4, 9)])
def test_overlapping_launches_give_the_same_numbers(data: Dataset, poison: tuple[int, ...]) -> None:
    plain, lazy = FakeSession(linear_plan(), poison), LazySession(poison)
    (a, a_eval, a_weight), (b, b_eval, b_weight) = trained(plain, data), trained(lazy, data)
    assert [(e.train_loss, e.train_top1, e.skipped) for e in a.epochs] == [
        (e.train_loss, e.train_top1, e.skipped) for e in b.epochs
    ]
    assert a_eval == b_eval
    np.testing.assert_array_equal(a_weight, b_weight)


def test_there_is_one_launch_a_step_and_the_next_batch_travels_beside_it(data: Dataset) -> None:
    session = LazySession()
    runner = Runner(session.plan, session)
    runner.run(data, 1)
    assert session.launches == [
        ("transfer_a", 0, None, None),
        ("train_a", 0, "transfer_b", 0),
        ("train_b", 0, "transfer_a", 0),
        ("train_a", 0, "transfer_b", 0),
        ("train_b", 0, "transfer_a", 1),
        ("train_last_a", 1, None, None),
        ("transfer_b", 4, None, None),
        ("infer_b", 4, "transfer_a", 4),
        ("infer_a", 4, "transfer_b", 5),
        ("infer_last_b", 5, None, None),
    ]
    assert {launch for launch in session.launches if launch[2] is not None} <= session.prepared


def test_the_average_is_validated_on_the_batch_that_is_there_already(data: Dataset) -> None:
    """Both steps of a batch run on the same buffer; the next batch travels beside the second."""
    session = LazySession(plan=linear_plan(ema=EMA(0.5)))
    runner = Runner(session.plan, session)
    runner.run(data, 1)
    assert session.launches[6:] == [
        ("transfer_b", 4, None, None),
        ("infer_b", 4, None, None),
        ("infer_ema_b", 4, "transfer_a", 4),
        ("infer_a", 4, None, None),
        ("infer_ema_a", 4, "transfer_b", 5),
        ("infer_last_b", 5, None, None),
        ("infer_ema_last_b", 5, None, None),
    ]
    assert {launch for launch in session.launches if launch[2] is not None} <= session.prepared


@pytest.mark.parametrize("poison", [(), (3, 7)])
def test_overlapping_launches_validate_the_average_alike(data: Dataset, poison: tuple[int, ...]) -> None:
    plan = linear_plan(ema=EMA(0.8))
    plain, lazy = FakeSession(plan, poison), LazySession(poison, plan)
    runs = [Runner(plan, s).run(data, 3) for s in (plain, lazy)]
    assert [(e.val, e.ema) for e in runs[0].epochs] == [(e.val, e.ema) for e in runs[1].epochs]
    assert all(e.ema is not None and e.val is not None and e.ema.loss != e.val.loss for e in runs[0].epochs)
    np.testing.assert_array_equal(plain.read("fc1.weight.ema"), lazy.read("fc1.weight.ema"))
