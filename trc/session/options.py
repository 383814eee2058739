"""From what a user says to a complete RunConfig: defaults, checks and messages that name what is missing."""

from __future__ import annotations

import operator
import os
import typing
from collections.abc import Sequence
from difflib import get_close_matches
from typing import SupportsIndex, TypedDict

from trc.blueprint import BluePrint
from trc.blueprint.network import checked_input
from trc.diagnostics import CompileError
from trc.passes.pipelines import rate_table_length
from trc_runtime.schema.config import (
    EMA,
    SGD,
    WSD,
    Adam,
    AdamW,
    Constant,
    CosineAnnealing,
    CosineWarmRestarts,
    CrossEntropy,
    Exponential,
    MultiStep,
    Normalise,
    Optimizer,
    Polynomial,
    RunConfig,
    Schedule,
    StepDecay,
)
from trc_runtime.schema.dtypes import Precision
from trc_runtime.schema.normalise import too_large_problem

Resolution = int | tuple[int, int]
"""A square side, or (height, width)."""

TARGETS = ("cpu", "cuda")
PLANNERS = ("packed", "regions")

_OPTIMIZERS = (SGD, Adam, AdamW)
_SCHEDULES = (
    Constant,
    CosineAnnealing,
    Polynomial,
    StepDecay,
    MultiStep,
    Exponential,
    WSD,
    CosineWarmRestarts,
)

_LARGEST = 2**31 - 1
"""Of counts: batches, samples and steps are counted with 32 bits on the device."""

_MOST_RATES = 1 << 26
"""Entries of the rate table, which has one a step; a run of ImageNet has half a million."""


class CompileOptions(TypedDict, total=False):
    """Keyword arguments of `trc.compile` and `trc.lower`; all may be left out where a default makes sense.

    Sample counts left out mean unknown: full batches only. `num_classes` defaults to the network's output channels,
    `train_resolution` may be one resolution or (begin, end). With `ema` a moving average of the weights is kept and
    validated too. `autotune` is a file of cuDNN engines measured on this GPU; what it lacks is measured and added. With
    `normalise` images are unsigned bytes, which the device normalises; without, floating-point numbers that are
    normalised already.
    """

    input: Sequence[int] | None
    num_classes: int | None
    batch: int
    optimizer: Optimizer | None
    schedule: Schedule | None
    loss: CrossEntropy | None
    ema: EMA | None
    epochs: int | None
    train_samples: int | None
    val_samples: int | None
    train_resolution: Resolution | tuple[Resolution, Resolution] | None
    val_resolution: Resolution | None
    val_batch: int | None
    world_size: int
    precision: str | Precision
    target: str
    seed: int
    fuse: bool
    planner: str
    choices: str | None
    autotune: str | os.PathLike[str] | None
    normalise: Normalise | None


DEFAULTS: CompileOptions = {
    "input": None,
    "num_classes": None,
    "batch": 128,
    "optimizer": None,
    "schedule": None,
    "loss": None,
    "ema": None,
    "epochs": None,
    "train_samples": None,
    "val_samples": None,
    "train_resolution": None,
    "val_resolution": None,
    "val_batch": None,
    "world_size": 1,
    "precision": "fp32",
    "target": "cpu",
    "seed": 0,
    "fuse": True,
    "planner": "packed",
    "choices": None,
    "autotune": None,
    "normalise": None,
}


def with_defaults(options: CompileOptions) -> CompileOptions:
    """The options, completed; CompileError for one that does not exist."""
    for name in options:
        if name not in DEFAULTS:
            close = get_close_matches(name, DEFAULTS, n=1)
            hint = f"; did you mean '{close[0]}'?" if close else ""
            raise _fail(f"trc.compile has no option '{name}'{hint}")
    return DEFAULTS | options


def _fail(message: str) -> CompileError:
    return CompileError(message)


def _whole(value: object) -> int | None:
    """The value as a plain int, NumPy's whole numbers too; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        return None
    try:
        return operator.index(value)
    except TypeError:  # an array of NumPy
        return None


def _positive(name: str, value: object) -> int:
    number = _whole(value)
    if number is None or number < 1:
        raise _fail(f"{name} must be a whole number of at least 1, not {value!r}")
    if number > _LARGEST:
        raise _fail(f"{name} must be at most {_LARGEST:,}, not {number}")
    return number


def _optional_positive(name: str, value: object) -> int | None:
    return None if value is None else _positive(name, value)


def _several(value: object) -> list[object] | None:
    """The members of a list, a tuple or an array; None for anything else, as sets and texts."""
    if isinstance(value, tuple | list):
        return list(typing.cast(Sequence[object], value))
    if hasattr(value, "__array__"):
        members: object = typing.cast(typing.Any, value).tolist()
        return typing.cast("list[object]", members) if isinstance(members, list) else None
    return None


def _pair(name: str, value: object) -> tuple[int, int]:
    if _whole(value) is not None or isinstance(value, bool):
        side = _positive(name, value)
        return side, side
    sides = _several(value)
    if sides is not None and len(sides) == 2:
        return _positive(name, sides[0]), _positive(name, sides[1])
    raise _fail(f"{name} must be a side in pixels or a (height, width) pair, not {value!r}")


def resolve_input(blueprint: BluePrint, given: Sequence[int] | None) -> tuple[int, int, int]:
    """The network's input (height, width, channels), from the call or from the blueprint's `input(...)`."""
    size = given if given is not None else blueprint.input
    if size is None:
        raise _fail(
            f"the input size of '{blueprint.name}' is unknown: write input(height, width, channels) in the blueprint "
            "or pass input=(height, width, channels)"
        )
    sizes = _several(size)
    if sizes is None or len(sizes) != 3:
        raise _fail(f"input must be (height, width, channels), not {size!r}")
    h, w, c = (_positive(f"input {what}", v) for what, v in zip(("height", "width", "channels"), sizes, strict=True))
    try:
        return checked_input((h, w, c))
    except ValueError as err:
        raise _fail(str(err)) from None


def choose_target(target: str) -> str:
    """Check the name of a target."""
    if target not in TARGETS:
        raise _fail(f"unknown target {target!r}; choose one of {', '.join(TARGETS)}")
    return target


def choose_planner(planner: str) -> str:
    """Check the name of a planner mode."""
    if planner not in PLANNERS:
        raise _fail(f"unknown planner {planner!r}; choose one of {', '.join(PLANNERS)}")
    return planner


def make_config(blueprint: BluePrint, options: CompileOptions, num_classes: int) -> RunConfig:
    """Everything a network is compiled for; CompileError names what is wrong or missing."""
    o = typing.cast(dict[str, typing.Any], with_defaults(options))
    h, w, c = resolve_input(blueprint, o["input"])
    optimizer: object = o["optimizer"] if o["optimizer"] is not None else AdamW(weight_decay=1e-4)
    schedule: object = o["schedule"] if o["schedule"] is not None else Constant(base_lr=1e-3)
    loss: object = o["loss"] if o["loss"] is not None else CrossEntropy()
    if not isinstance(optimizer, _OPTIMIZERS):
        names = ", ".join(f"trc.{k.__name__}(...)" for k in _OPTIMIZERS)
        raise _fail(f"optimizer must be one of {names}, not {optimizer!r}")
    if not isinstance(schedule, _SCHEDULES):
        names = ", ".join(f"trc.{k.__name__}(...)" for k in _SCHEDULES)
        raise _fail(f"schedule must be one of {names}, not {schedule!r}")
    if not isinstance(loss, CrossEntropy):
        raise _fail(f"loss must be trc.CrossEntropy(...), not {loss!r}")
    ema: object = o["ema"]
    if not isinstance(ema, EMA | None):
        raise _fail(f"ema must be trc.EMA(...) or None, not {ema!r}")
    missing = [n for n in ("epochs", "train_samples") if o[n] is None]
    if missing and not (isinstance(schedule, Constant) and schedule.warmup == 0):
        warmup = " with a warm-up" if isinstance(schedule, Constant) else ""
        raise _fail(
            f"{type(schedule).__name__}{warmup} needs to know how long the training is: pass {' and '.join(missing)}, "
            "or use trc.Constant(base_lr=...)"
        )
    seed = _whole(o["seed"])
    if seed is None or not 0 <= seed < 2**64:
        raise _fail(f"seed must be a whole number from 0 to 2**64 - 1, not {o['seed']!r}")
    if not isinstance(o["fuse"], bool):
        raise _fail(f"fuse must be True or False, not {o['fuse']!r}")
    if o["autotune"] is not None and o["target"] != "cuda":
        raise _fail("autotune measures cuDNN's engines: it goes with target='cuda'")
    if not isinstance(o["autotune"], str | os.PathLike | None):
        raise _fail(f"autotune must be the path of a file, not {o['autotune']!r}")
    if not isinstance(o["choices"], str | os.PathLike | None):
        raise _fail(f"choices must be the path of a file, not {o['choices']!r}")
    classes = _positive("num_classes", num_classes)
    if classes < 2:
        given = "num_classes is 1" if o["num_classes"] is not None else "the network's result has 1 channel"
        raise _fail(f"{given}, and softmax cross entropy chooses between at least 2 classes: end in fc(2) or more")
    try:
        precision = Precision.from_text(str(o["precision"]))
    except ValueError as err:
        raise _fail(str(err)) from None
    batch = _positive("batch", o["batch"])
    config = RunConfig(
        optimizer=optimizer,
        schedule=schedule,
        loss=loss,
        input=(h, w, c),
        num_classes=classes,
        batch=batch,
        val_batch=batch if o["val_batch"] is None else _positive("val_batch", o["val_batch"]),
        epochs=_optional_positive("epochs", o["epochs"]),
        train_samples=_optional_positive("train_samples", o["train_samples"]),
        val_samples=_optional_positive("val_samples", o["val_samples"]),
        train_resolution=_train_resolution(o["train_resolution"], (h, w)),
        val_resolution=(h, w) if o["val_resolution"] is None else _pair("val_resolution", o["val_resolution"]),
        world_size=_positive("world_size", o["world_size"]),
        precision=precision,
        seed=seed,
        normalise=_normalise(o["normalise"], c, precision),
        ema=ema,
    )
    if (steps := rate_table_length(config)) > _MOST_RATES:
        raise _fail(
            f"{config.epochs} epochs of {config.train_samples} samples are {steps:,} steps, each with its rate, and "
            f"there may be {_MOST_RATES:,}: take fewer epochs, or leave epochs out with trc.Constant(base_lr=...)"
        )
    return config


def _normalise(given: object, channels: int, precision: Precision) -> Normalise | None:
    """How bytes are normalised, checked against the input's channels and the type that pixels get."""
    if given is None:
        return None
    if not isinstance(given, Normalise):
        raise _fail(f"normalise must be trc.Normalise(mean, std), not {given!r}")
    if len(given.mean) != channels:
        what = "1 channel" if channels == 1 else f"{channels} channels"
        raise _fail(
            f"the network's input has {what}, normalise has {len(given.mean)}: trc.Normalise(mean, std) takes one "
            "number a channel"
        )
    if problem := too_large_problem(given, precision):
        raise _fail(problem)
    return given


def _train_resolution(
    given: Resolution | tuple[Resolution, Resolution] | None, default: tuple[int, int]
) -> tuple[tuple[int, int], tuple[int, int]]:
    """(begin, end); one resolution stands for both, and ((h, w), (h, w)) for a change between epochs."""
    if given is None:
        return default, default
    ends = _several(given)
    if ends is not None and len(ends) == 2 and any(_several(side) is not None for side in ends):
        return _pair("train_resolution (begin)", ends[0]), _pair("train_resolution (end)", ends[1])
    one = _pair("train_resolution", given)
    return one, one
