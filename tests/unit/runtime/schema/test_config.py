"""Optimizers, schedules and losses: what they take, and what they say about what they do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trc_runtime.schema.codec import from_json, to_json
from trc_runtime.schema.config import (
    EMA,
    SGD,
    Adam,
    AdamW,
    Constant,
    CosineWarmRestarts,
    CrossEntropy,
    MultiStep,
    Schedule,
    StepDecay,
)

Make = Any


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (SGD, {"momentum": "x"}, "SGD: momentum must be a number, not 'x'"),
        (SGD, {"momentum": True}, "SGD: momentum must be a number, not True"),
        (SGD, {"momentum": 0.9, "nesterov": "no"}, "SGD: nesterov must be True or False, not 'no'"),
        (SGD, {"decoupled": 1}, "SGD: decoupled must be True or False, not 1"),
        (AdamW, {"betas": 1e-3}, "AdamW: betas must be a tuple of numbers, not 0.001"),
        (Adam, {"betas": ("a", "b")}, "Adam: betas must be a tuple of numbers"),
        (Adam, {"eps": None}, "Adam: eps must be a number, not None"),
        (Constant, {"base_lr": "0.1"}, "Constant: base_lr must be a number, not '0.1'"),
        (Constant, {"base_lr": 10**400}, "Constant: base_lr must be a number"),
        (Constant, {"by": 3}, "Constant: by must be a text, not 3"),
        (MultiStep, {"milestones": (1.5, 2)}, "MultiStep: milestones must be a tuple of whole numbers"),
        (MultiStep, {"milestones": 3}, "MultiStep: milestones must be a tuple of whole numbers, not 3"),
        (MultiStep, {"milestones": "12"}, "MultiStep: milestones must be a tuple of whole numbers"),
        (StepDecay, {"step_size": 2.5}, "StepDecay: step_size must be a whole number, not 2.5"),
        (CosineWarmRestarts, {"first_cycle": 1.5}, "first_cycle must be a whole number, not 1.5"),
        (EMA, {"decay": "0.9"}, "EMA: decay must be a number, not '0.9'"),
        (EMA, {"warmup": 1}, "EMA: warmup must be True or False, not 1"),
        (EMA, {"decay": 0}, r"EMA: decay must be between 0 and 1 \(at most 0.99999994, the last float32 .*, not 0.0"),
        (EMA, {"decay": 1}, r"EMA: decay must be between 0 and 1 .*, not 1\.0"),
        (EMA, {"decay": 1 - 1e-9}, r"EMA: decay must be between 0 and 1 .*, not 0\.999999999"),
        (EMA, {"decay": float("nan")}, "EMA: decay must be between 0 and 1 .*, not nan"),
        (CrossEntropy, {"label_smoothing": "0.1"}, "CrossEntropy: label_smoothing must be a number, not '0.1'"),
        (CrossEntropy, {"label_smoothing": float("nan")}, r"label_smoothing must be in \[0, 1\), not nan"),
    ],
)
def test_values_of_the_wrong_type_are_named(make: Make, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**arguments)


@pytest.mark.parametrize(
    "config",
    [
        SGD(momentum=np.float32(0.5), nesterov=np.bool_(True)),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        AdamW(betas=[0.9, np.float64(0.99)], eps=1),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        MultiStep(milestones=[1, np.int64(2)], base_lr=1),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        StepDecay(step_size=np.int64(2)),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        CrossEntropy(0),
        EMA(np.float32(0.5), np.bool_(True)),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    ],
)
def test_lists_and_numbers_of_numpy_come_back_from_json_equal(config: Schedule) -> None:
    assert from_json(type(config), to_json(config), "config") == config
