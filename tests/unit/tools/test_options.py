"""Optimizers and schedules on the command line."""

import argparse

import pytest

from trc.tools.options import OPTIMIZERS, SCHEDULES, parse_spec
from trc_runtime.schema.config import SGD, AdamW, CosineAnnealing, MultiStep


def test_specs() -> None:
    assert parse_spec("optimizer", "sgd:momentum=0.9,nesterov=true", OPTIMIZERS) == SGD(momentum=0.9, nesterov=True)
    assert parse_spec("optimizer", "adamw:betas=0.8/0.99", OPTIMIZERS) == AdamW(betas=(0.8, 0.99))
    assert parse_spec("schedule", "cosine:base_lr=1e-3,warmup=1", SCHEDULES) == CosineAnnealing(base_lr=1e-3, warmup=1)
    assert parse_spec("schedule", "multistep:milestones=3/5", SCHEDULES) == MultiStep(milestones=(3, 5))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("adamm", "unknown optimizer 'adamm'; did you mean 'adam"),
        ("sgd:momentun=0.9", "sgd has no 'momentun'; did you mean 'momentum'"),
        ("sgd:momentum", "'momentum' is not key=value"),
        ("sgd:momentum=x", "momentum must be a number, not 'x'"),
        ("sgd:nesterov=yes", "nesterov must be true or false"),
        ("sgd:momentum=0.9,momentum=0.8", "'momentum' is given twice"),
        ("sgd:momentum=-1", "momentum must be >= 0"),
    ],
)
def test_messages(text: str, message: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=message):
        parse_spec("optimizer", text, OPTIMIZERS)
