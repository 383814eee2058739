"""Settings of the optimizer and of the moving average as pass options, checked."""

from __future__ import annotations

from dataclasses import dataclass

from trc.diagnostics import CompileError
from trc.passes.plan.common import to_float
from trc_runtime.schema.config import EMA, SGD, Adam, AdamW, Optimizer

Number = float | int | str
"""How a numeric option may arrive (see `to_float`)."""

OPTIMIZERS = ("sgd", "adam", "adamw")


@dataclass(frozen=True)
class OptimizerSettings:
    """What the planner needs to know of an optimizer. `decay` is none, l2 or decoupled."""

    optimizer: Optimizer
    momentum: bool
    adam: bool
    nesterov: bool
    decay: str

    @classmethod
    def of(cls, optimizer: Optimizer) -> OptimizerSettings:
        """The settings of a configured optimizer."""
        decoupled = optimizer.decoupled if isinstance(optimizer, SGD) else isinstance(optimizer, AdamW)
        decay = "none" if optimizer.weight_decay == 0 else "decoupled" if decoupled else "l2"
        if isinstance(optimizer, SGD):
            return cls(optimizer, optimizer.momentum > 0, False, optimizer.nesterov, decay)
        return cls(optimizer, False, True, False, decay)

    @property
    def moments(self) -> tuple[str, ...]:
        """The optimizer's state a parameter, by suffix: m, v."""
        return ("m", "v") if self.adam else ("m",) if self.momentum else ()

    @property
    def scalars(self) -> dict[str, float]:
        """The constants of the update rule, by the scalar's name."""
        o = self.optimizer
        if isinstance(o, SGD):
            beta = {"beta1": o.momentum} if self.momentum else {}
            return {**beta, "weight_decay": o.weight_decay}
        return {"beta1": o.betas[0], "beta2": o.betas[1], "eps": o.eps, "weight_decay": o.weight_decay}


def optimizer_from_options(
    optimizer: str,
    momentum: Number,
    nesterov: bool,
    beta1: Number,
    beta2: Number,
    eps: Number,
    weight_decay: Number,
    decoupled: bool,
) -> OptimizerSettings:
    """The optimizer that pass options describe; CompileError for values out of range and options it does not have."""
    if optimizer not in OPTIMIZERS:
        raise CompileError(f"unknown optimizer '{optimizer}'; choose one of {', '.join(OPTIMIZERS)}")
    decay = to_float("weight-decay", weight_decay)
    try:
        if optimizer == "sgd":
            return OptimizerSettings.of(SGD(to_float("momentum", momentum), nesterov, decay, decoupled))
        for option, given in (("momentum", to_float("momentum", momentum) != 0), ("nesterov", nesterov)):
            if given:
                raise CompileError(f"option {option} belongs to sgd, not to {optimizer}")
        if decoupled:
            raise CompileError(f"option decoupled belongs to sgd, not to {optimizer}; adamw decays decoupled")
        kind = AdamW if optimizer == "adamw" else Adam
        betas = to_float("beta1", beta1), to_float("beta2", beta2)
        return OptimizerSettings.of(kind(betas, to_float("eps", eps), decay))
    except ValueError as err:
        raise CompileError(str(err)) from None


def optimizer_options(optimizer: Optimizer) -> dict[str, Number | bool | str]:
    """The pass options that describe an optimizer, defaults left out; the inverse of `optimizer_from_options`."""
    if isinstance(optimizer, SGD):
        options = {
            "optimizer": "sgd",
            "momentum": optimizer.momentum,
            "nesterov": optimizer.nesterov,
            "decoupled": optimizer.decoupled,
        }
    else:
        options = {
            "optimizer": "adamw" if isinstance(optimizer, AdamW) else "adam",
            "beta1": optimizer.betas[0],
            "beta2": optimizer.betas[1],
            "eps": optimizer.eps,
        }
    return {**options, "weight_decay": optimizer.weight_decay}


def ema_from_options(decay: Number, warmup: bool = False) -> EMA | None:
    """The moving average that pass options describe, None for a decay of 0; CompileError for values out of range."""
    value = to_float("ema-decay", decay)
    if value == 0:
        if warmup:
            raise CompileError("option ema-warmup needs a moving average: give ema-decay")
        return None
    try:
        return EMA(value, warmup)
    except ValueError as err:
        raise CompileError(f"option ema-decay: {err}") from None


def ema_options(ema: EMA | None) -> dict[str, Number | bool]:
    """The pass options that describe a moving average; the inverse of `ema_from_options`."""
    return {} if ema is None else {"ema_decay": ema.decay, "ema_warmup": ema.warmup}
