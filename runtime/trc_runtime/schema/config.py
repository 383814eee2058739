"""Optimizers, schedules, losses, the input's normalisation and the settings of a run, as frozen data.

Nothing here computes: the formulas of the schedules are in `trc_runtime.train.schedules`, the update rules in
the kernels, the arithmetic of `Normalise` in `trc_runtime.schema.normalise`.
"""

from __future__ import annotations

import math
import numbers
import operator
import typing
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from trc_runtime.schema.codec import LATER
from trc_runtime.schema.dtypes import Precision


def _require(ok: bool, message: str) -> None:
    if not ok:
        raise ValueError(message)


def _finite(*values: float) -> bool:
    return all(math.isfinite(v) for v in values)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _settle(config: object) -> None:
    """Give every field of a frozen dataclass exactly its type, so that it is equal to what JSON gives back.

    Whole numbers become floats where floats are wanted, lists tuples, numbers of NumPy plain ones. ValueError names
    the field that cannot.
    """
    for name, kind in _hints(type(config)).items():
        value: object = getattr(config, name)
        try:
            plain = _plain(kind, value)
        except (TypeError, OverflowError):
            wanted = _WORDS.get(kind) or f"a tuple of {_WORDS[typing.get_args(kind)[0]].split(' ', 1)[1]}s"
            raise ValueError(f"{type(config).__name__}: {name} must be {wanted}, not {value!r}") from None
        object.__setattr__(config, name, plain)


_WORDS = {float: "a number", int: "a whole number", bool: "True or False", str: "a text"}


def _plain(kind: Any, value: Any) -> object:
    if typing.get_origin(kind) is tuple:
        if isinstance(value, str | bytes | Set | Mapping) or not hasattr(value, "__iter__"):  # sets have no order
            raise TypeError
        item = typing.get_args(kind)[0]
        return tuple(_plain(item, v) for v in value)
    if kind in (bool, str):
        # NumPy's truth value converts to bool by name only.
        if isinstance(value, kind) or (kind is bool and type(value).__name__ in ("bool_", "bool")):
            return kind(value)
        raise TypeError
    if isinstance(value, bool):
        raise TypeError
    if kind is int:
        return operator.index(value)
    if not isinstance(value, numbers.Real):
        raise TypeError
    return float(value)


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent; momentum and Nesterov as torch.optim.SGD.

    `weight_decay` enters the gradient, as in PyTorch; with `decoupled` the weight shrinks by rate * decay
    instead (the original's rule). Decay applies to weights of fully connected and convolution layers only.
    """

    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    decoupled: bool = False

    def __post_init__(self) -> None:
        _settle(self)
        _require(_finite(self.momentum) and self.momentum >= 0, f"SGD: momentum must be >= 0, not {self.momentum}")
        _require(
            _finite(self.weight_decay) and self.weight_decay >= 0,
            f"SGD: weight_decay must be >= 0, not {self.weight_decay}",
        )
        _require(not self.nesterov or self.momentum > 0, "SGD: nesterov needs momentum > 0")


def _check_adam(name: str, betas: tuple[float, float], eps: float, weight_decay: float) -> None:
    _require(
        len(betas) == 2 and _finite(*betas) and all(0 < b < 1 for b in betas),
        f"{name}: betas must be two numbers between 0 and 1, not {betas}",
    )
    _require(_finite(eps) and eps > 0, f"{name}: eps must be > 0, not {eps}")
    _require(_finite(weight_decay) and weight_decay >= 0, f"{name}: weight_decay must be >= 0, not {weight_decay}")


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba 2015); weight decay is added to the gradient."""

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        _settle(self)
        _check_adam("Adam", self.betas, self.eps, self.weight_decay)


@dataclass(frozen=True)
class AdamW:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        _settle(self)
        _check_adam("AdamW", self.betas, self.eps, self.weight_decay)


Optimizer = SGD | Adam | AdamW


def _check_schedule(schedule: _Warmup) -> None:
    name = type(schedule).__name__
    _require(_finite(schedule.base_lr) and schedule.base_lr > 0, f"{name}: base_lr must be > 0, not {schedule.base_lr}")
    _require(
        _finite(schedule.warmup) and schedule.warmup >= 0, f"{name}: warmup must be >= 0 epochs, not {schedule.warmup}"
    )
    _require(
        _finite(schedule.warmup_start_lr) and schedule.warmup_start_lr >= 0,
        f"{name}: warmup_start_lr must be >= 0, not {schedule.warmup_start_lr}",
    )


@dataclass(frozen=True, kw_only=True)
class _Warmup:
    """What all schedules share.

    `warmup` epochs rise linearly from `warmup_start_lr` to `base_lr`. With `by="step"` (the default) the rate
    changes at every step, with `by="epoch"` once an epoch.
    """

    base_lr: float = 0.1
    warmup: float = 0
    warmup_start_lr: float = 0.0
    by: str = "step"

    def __post_init__(self) -> None:
        _settle(self)
        _check_schedule(self)
        _require(self.by in ("step", "epoch"), f"{type(self).__name__}: by must be 'step' or 'epoch', not {self.by!r}")


@dataclass(frozen=True, kw_only=True)
class Constant(_Warmup):
    """The base rate, for ever."""


@dataclass(frozen=True, kw_only=True)
class CosineAnnealing(_Warmup):
    """Half a cosine from `base_lr` to `eta_min`."""

    eta_min: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(
            0 <= self.eta_min <= self.base_lr,
            f"CosineAnnealing: eta_min must be between 0 and base_lr, not {self.eta_min}",
        )


@dataclass(frozen=True, kw_only=True)
class Polynomial(_Warmup):
    """From `base_lr` to `end_lr` along (1 - progress) ** power."""

    power: float = 2.0
    end_lr: float = 1e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(_finite(self.power) and self.power > 0, f"Polynomial: power must be > 0, not {self.power}")
        _require(
            0 <= self.end_lr <= self.base_lr, f"Polynomial: end_lr must be between 0 and base_lr, not {self.end_lr}"
        )


@dataclass(frozen=True, kw_only=True)
class StepDecay(_Warmup):
    """Times `gamma` every `step_size` epochs, counted after the warm-up."""

    step_size: int = 10
    gamma: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.step_size >= 1, f"StepDecay: step_size must be >= 1, not {self.step_size}")
        _require(_finite(self.gamma) and self.gamma > 0, f"StepDecay: gamma must be > 0, not {self.gamma}")


@dataclass(frozen=True, kw_only=True)
class MultiStep(_Warmup):
    """Times `gamma` at each of the `milestones` (absolute epochs, rising)."""

    milestones: tuple[int, ...] = ()
    gamma: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        rising = all(a < b for a, b in zip(self.milestones, self.milestones[1:], strict=False))
        _require(rising, f"MultiStep: milestones must rise, not {self.milestones}")
        _require(_finite(self.gamma) and self.gamma > 0, f"MultiStep: gamma must be > 0, not {self.gamma}")


@dataclass(frozen=True, kw_only=True)
class Exponential(_Warmup):
    """Times `gamma` each epoch."""

    gamma: float = 0.95

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(_finite(self.gamma) and self.gamma > 0, f"Exponential: gamma must be > 0, not {self.gamma}")


@dataclass(frozen=True, kw_only=True)
class WSD(_Warmup):
    """Warm-up, stable, decay: the base rate for `stable` of the time, then linear to `end_lr`."""

    stable: float = 0.8
    end_lr: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(0 <= self.stable <= 1, f"WSD: stable must be between 0 and 1, not {self.stable}")
        _require(0 <= self.end_lr <= self.base_lr, f"WSD: end_lr must be between 0 and base_lr, not {self.end_lr}")


@dataclass(frozen=True, kw_only=True)
class CosineWarmRestarts(_Warmup):
    """Cosine cycles of `first_cycle` epochs, each `cycle_factor` times as long as the last."""

    first_cycle: int = 10
    cycle_factor: int = 1
    eta_min: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.first_cycle >= 1, f"CosineWarmRestarts: first_cycle must be >= 1, not {self.first_cycle}")
        _require(self.cycle_factor >= 1, f"CosineWarmRestarts: cycle_factor must be >= 1, not {self.cycle_factor}")
        _require(
            0 <= self.eta_min <= self.base_lr,
            f"CosineWarmRestarts: eta_min must be between 0 and base_lr, not {self.eta_min}",
        )


Schedule = Constant | CosineAnnealing | Polynomial | StepDecay | MultiStep | Exponential | WSD | CosineWarmRestarts


@dataclass(frozen=True)
class CrossEntropy:
    """Softmax cross entropy, mean over the batch; exact log-softmax.

    The target is (1 - s) on the label plus s / classes everywhere, s being `label_smoothing` in [0, 1).
    """

    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        _settle(self)
        _require(
            0 <= self.label_smoothing < 1,
            f"CrossEntropy: label_smoothing must be in [0, 1), not {self.label_smoothing}",
        )


LARGEST_DECAY = 1 - 2.0**-24
"""The last float32 below 1."""


@dataclass(frozen=True)
class EMA:
    """An exponential moving average E of the weights and of batch norm's running statistics.

    E begins as a copy of them and becomes decay E + (1 - decay) W after every step that was applied; a skipped step
    leaves it alone (Polyak and Juditsky 1992; the rule is that of timm's ModelEma and torch's
    `AveragedModel(use_buffers=True)`, which averages the running statistics too). With `warmup` the decay of the t-th
    applied step, t from 1, is min(decay, (1 + t) / (10 + t)), as in TensorFlow's ExponentialMovingAverage with
    `num_updates`: a run much shorter than 1 / (1 - decay) steps then does not keep its initial weights. It is off by
    default, as it is there, so that a published recipe's decay means what it means elsewhere.
    """

    decay: float = 0.999
    warmup: bool = False

    def __post_init__(self) -> None:
        _settle(self)
        _require(
            0 < self.decay <= LARGEST_DECAY,
            f"EMA: decay must be between 0 and 1 (at most {LARGEST_DECAY:.8f}, the last float32 below 1), "
            f"not {self.decay}",
        )


@dataclass(frozen=True)
class Normalise:
    """How pixels of unsigned bytes become numbers: (x / 255 - mean) / std, with one mean and one std a channel.

    ValueError for lists of different lengths, for a std that is not above 0, and for numbers that float32 cannot
    compute with.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        _settle(self)
        _require(len(self.mean) > 0, "Normalise: mean and std have one number a channel, and there is no channel")
        _require(
            len(self.mean) == len(self.std),
            f"Normalise: mean has {len(self.mean)} channels, std has {len(self.std)}",
        )
        _require(_finite(*self.mean), f"Normalise: mean must be finite, not {self.mean}")
        _require(
            _finite(*self.std) and all(s > 0 for s in self.std),
            f"Normalise: std must be above 0 in each channel, not {self.std}",
        )
        largest = max(max(1.0, abs(m), abs(1.0 - m)) / s for m, s in zip(self.mean, self.std, strict=True))
        _require(largest < _LARGEST_PIXEL, f"Normalise: std is too small beside 1 and mean for float32: {self.std}")
        _require(max(self.std) < _LARGEST_STD, f"Normalise: std is too large for float32: {self.std}")

    def __str__(self) -> str:
        return f"mean {_listed(self.mean)}, std {_listed(self.std)}"


def _listed(numbers: tuple[float, ...]) -> str:
    """`0.1307`, `(0.485, 0.456, 0.406)`."""
    text = ", ".join(f"{n:.6g}" for n in numbers)
    return text if len(numbers) == 1 else f"({text})"


_LARGEST_PIXEL = 3.38e38
"""Rounded below the largest numbers of float32 and bfloat16."""

_LARGEST_STD = 3.3e35
"""Beyond it 1 / (255 std) is no normal number of float32."""


@dataclass(frozen=True)
class RunConfig:
    """Everything a compiled network was compiled for, besides the network.

    Sample counts of None mean unknown: full batches only. Resolutions are (height, width) pairs; `train_resolution`
    is (begin, end). With `normalise` the network takes unsigned bytes and normalises them on the device; with `ema` it
    keeps a moving average of its weights.
    """

    optimizer: Optimizer
    schedule: Schedule
    loss: CrossEntropy
    input: tuple[int, int, int]
    num_classes: int
    batch: int
    val_batch: int
    epochs: int | None
    train_samples: int | None
    val_samples: int | None
    train_resolution: tuple[tuple[int, int], tuple[int, int]]
    val_resolution: tuple[int, int]
    world_size: int
    precision: Precision
    seed: int
    normalise: Normalise | None = field(default=None, metadata=LATER)
    ema: EMA | None = field(default=None, metadata=LATER)
