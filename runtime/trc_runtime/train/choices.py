"""Optimizers, schedules and normalisations as people write them.

`adamw`, `sgd:momentum=0.9`, `cosine:warmup=1,eta_min=1e-6`, `mnist`, `mean=0.5/0.5/0.5,std=0.2/0.2/0.2`.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields
from difflib import get_close_matches
from typing import Any

from trc_runtime.data.dataset import NORMALISATIONS
from trc_runtime.schema.config import (
    EMA,
    SGD,
    WSD,
    Adam,
    AdamW,
    Constant,
    CosineAnnealing,
    CosineWarmRestarts,
    Exponential,
    MultiStep,
    Normalise,
    Optimizer,
    Polynomial,
    Schedule,
    StepDecay,
)

Values = dict[str, Any]


class ChoiceError(ValueError):
    """A choice that cannot be read; the message says what there is."""


OPTIMIZERS: Mapping[str, tuple[type[Any], Values]] = {
    "sgd": (SGD, {}),
    "momentum": (SGD, {"momentum": 0.9}),
    "nesterov": (SGD, {"momentum": 0.9, "nesterov": True}),
    "adam": (Adam, {}),
    "adamw": (AdamW, {}),
}
"""Name of an optimizer to its class and the values that the name implies."""

BASE_RATES = {"sgd": 0.1, "momentum": 0.05, "nesterov": 0.05, "adam": 3e-3, "adamw": 3e-3}
"""The base rate where none is given, by the optimizer's name."""

SCHEDULES: Mapping[str, type[Any]] = {
    "constant": Constant,
    "cosine": CosineAnnealing,
    "polynomial": Polynomial,
    "step": StepDecay,
    "multistep": MultiStep,
    "exponential": Exponential,
    "wsd": WSD,
    "cosine-restarts": CosineWarmRestarts,
}
"""Name of a schedule to its class."""


def _choose(what: str, name: str, choices: typing.Collection[str]) -> str:
    if name in choices:
        return name
    close = get_close_matches(name, choices, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"there are {', '.join(choices)}"
    raise ChoiceError(f"unknown {what} '{name}'; {hint}")


def _value(kind: Any, text: str) -> Any:
    if kind is bool:
        return {"true": True, "false": False}[text.lower()]
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        return tuple(_value(item, part) for part in text.split("/"))
    return kind(text)


_WORDS = {float: "a number", int: "a whole number", bool: "true or false", str: "a word"}


def _item(kind: Any) -> Any:
    """The type of one value."""
    return typing.get_args(kind)[0] if typing.get_origin(kind) is tuple else kind


def _split(what: str, text: str, kinds: Mapping[str, Any]) -> Values:
    """The `key=value` pairs after the colon, each of the type of its field; numbers of a tuple stand between /."""
    values: Values = {}
    for pair in filter(None, text.split(",")):
        key, _, written = pair.partition("=")
        key = _choose(f"setting of {what}", key.strip(), kinds)
        if key in values:
            raise ChoiceError(f"{what}: {key} is given twice")
        try:
            values[key] = _value(kinds[key], written.strip())
        except (ValueError, KeyError):
            raise ChoiceError(f"{what}: {key}={written}: expected {_WORDS[_item(kinds[key])]}") from None
    return values


def _make(kind: type[Any], what: str, text: str, implied: Values, given: Values, form: str = "") -> Any:
    """An instance of a dataclass from what is implied, written and given; `form` says how all of it is written."""
    hints = typing.get_type_hints(kind)
    names = [f.name for f in fields(kind)]
    written = _split(what, text, {n: hints[n] for n in names})
    for name, value in given.items():
        if name not in names:
            raise ChoiceError(f"{what} has no {name}")
        if name in written and written[name] != value:
            raise ChoiceError(f"{what}: {name} is given twice, as {written[name]} and {value}")
    values = implied | written | given
    if missing := [f.name for f in fields(kind) if f.name not in values and f.default is MISSING]:
        raise ChoiceError(f"{what}: {missing[0]}= is missing{form}")
    try:
        return kind(**values)
    except ValueError as err:
        raise ChoiceError(str(err)) from None


def optimizer(text: str, **given: Any) -> Optimizer:
    """The optimizer that the text names; `given` are settings from elsewhere. ChoiceError for what does not fit."""
    name, _, rest = text.partition(":")
    kind, implied = OPTIMIZERS[_choose("optimizer", name.strip(), OPTIMIZERS)]
    return _make(kind, name, rest, implied, given)


def schedule(text: str, rate: float, /, **given: Any) -> Schedule:
    """The schedule that the text names; `rate` is the base rate unless another is given. ChoiceError as above."""
    name, _, rest = text.partition(":")
    kind = SCHEDULES[_choose("schedule", name.strip(), SCHEDULES)]
    return _make(kind, name, rest, {"base_lr": rate}, given)


def normalise(text: str) -> Normalise:
    """The normalisation that the text names or says, one number a channel. ChoiceError as above."""
    if "=" not in text:
        return NORMALISATIONS[_choose("normalisation", text.strip(), NORMALISATIONS)]
    form = "; write mean=M/M/...,std=S/S/..., one number a channel"
    return _make(Normalise, "normalise", text, {}, {}, form)


def ema(text: str) -> EMA:
    """The moving average of a decay, `0.999` or `0.999:warmup=true`. ChoiceError for what does not fit."""
    written, _, rest = text.partition(":")
    try:
        decay = float(written)
    except ValueError:
        raise ChoiceError(f"ema: expected a decay such as 0.999, not '{written}'") from None
    return _make(EMA, "ema", rest, {}, {"decay": decay})
