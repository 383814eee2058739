from __future__ import annotations

import re

import pytest

from trc_runtime.schema.config import SGD, AdamW, CosineAnnealing, MultiStep, Normalise
from trc_runtime.train.choices import BASE_RATES, OPTIMIZERS, SCHEDULES, ChoiceError, normalise, optimizer, schedule


def test_names_and_settings() -> None:
    assert optimizer("adamw", weight_decay=0.1) == AdamW(weight_decay=0.1)
    assert optimizer("adamw:betas=0.8/0.99,eps=1e-6") == AdamW(betas=(0.8, 0.99), eps=1e-6)
    assert optimizer("nesterov:momentum=0.8") == SGD(momentum=0.8, nesterov=True)
    assert optimizer("sgd:momentum=0.5, decoupled=true") == SGD(momentum=0.5, decoupled=True)
    assert schedule("cosine:eta_min=0,by=epoch", 0.2, warmup=2.0) == CosineAnnealing(
        base_lr=0.2, eta_min=0.0, by="epoch", warmup=2.0
    )
    assert schedule("multistep:milestones=3/7,base_lr=0.5", 0.2) == MultiStep(base_lr=0.5, milestones=(3, 7))
    for name in SCHEDULES:
        assert schedule(name, 0.1).base_lr == 0.1
    assert set(OPTIMIZERS) == set(BASE_RATES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("adamm", "unknown optimizer 'adamm'; did you mean 'adam'?"),
        ("lion", "unknown optimizer 'lion'; there are sgd, momentum, nesterov, adam, adamw"),
        ("adam:epz=1", "unknown setting of adam 'epz'; did you mean 'eps'?"),
        ("adam:eps=small", "adam: eps=small: expected a number"),
        ("sgd:nesterov=maybe", "sgd: nesterov=maybe: expected true or false"),
        ("adam:eps=1,eps=2", "adam: eps is given twice"),
        ("adam:eps=-1", "Adam: eps must be > 0, not -1.0"),
        ("adamw:weight_decay=0.2", "weight_decay is given twice, as 0.2 and 0.1"),
    ],
)
def test_mistakes(text: str, message: str) -> None:
    with pytest.raises(ChoiceError) as error:
        optimizer(text, weight_decay=0.1)
    assert message in str(error.value)
    with pytest.raises(ChoiceError, match="unknown schedule 'cosin'; did you mean 'cosine'"):
        schedule("cosin", 0.1)


@pytest.mark.parametrize("text", ["mean=0.5,std=0.2", " mean = 0.5, std = 0.2", "std=0.2,mean=0.5"])
def test_a_normalisation_is_read_as_it_is_written(text: str) -> None:
    assert normalise(text) == Normalise((0.5,), (0.2,))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("std = 0.2", "normalise: mean= is missing; write mean=M/M/...,std=S/S/..., one number a channel"),
        ("mean=0.5", "normalise: std= is missing; write mean=M/M"),
        ("men=0.5,std=0.2", "unknown setting of normalise 'men'; did you mean 'mean'?"),
        ("mean=0.5,mean=0.4,std=1", "normalise: mean is given twice"),
    ],
)
def test_what_a_normalisation_lacks(text: str, message: str) -> None:
    with pytest.raises(ChoiceError, match=re.escape(message)):
        normalise(text)
