"""What is measured: results of a step, an evaluation, an epoch and a run."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class StepResult:
    """One training step.

    The batch's mean loss, how many samples were right (first, first five), and whether the update was skipped
    because a gradient was not finite.
    """

    loss: float
    top1: int
    top5: int
    skipped: bool


@dataclass(frozen=True)
class EvalResult:
    """A pass over samples: mean loss, and the shares (0 to 1) that were right at the first and first five guesses."""

    loss: float
    top1: float
    top5: float
    samples: int


@dataclass(frozen=True)
class EpochResult:
    """An epoch: `epoch` counts from 1, `rate` is that of its first step, `seconds` include validation.

    `train_loss` and `train_top1` are means over the samples of the steps that were applied (NaN if none was);
    `val` is None where the epoch was not validated, `ema` (the same with the moving average of the weights) also where
    none is kept.
    """

    epoch: int
    rate: float
    train_loss: float
    train_top1: float
    train_samples: int
    skipped: int
    val: EvalResult | None
    train_seconds: float
    seconds: float
    ema: EvalResult | None = None


@dataclass(frozen=True)
class TrainingResult:
    """A run. `best_epoch` is the first with the highest `best_top1`; None where nothing was validated.

    `best_ema_epoch` and `best_ema_top1` are the same of the moving average; None where none is kept.
    """

    epochs: tuple[EpochResult, ...] = ()
    seconds: float = 0.0
    best_epoch: int | None = None
    best_top1: float | None = None
    best_top5: float | None = None
    skipped: int = field(default=0)
    best_ema_epoch: int | None = None
    best_ema_top1: float | None = None

    @property
    def last(self) -> EvalResult | None:
        """The last validation."""
        return next((e.val for e in reversed(self.epochs) if e.val is not None), None)

    @property
    def last_ema(self) -> EvalResult | None:
        """The last validation of the moving average."""
        return next((e.ema for e in reversed(self.epochs) if e.ema is not None), None)


def summarise(epochs: list[EpochResult], seconds: float) -> TrainingResult:
    """The result of these epochs."""
    # max takes the first of equal ones
    best = max(((e.val, e.epoch) for e in epochs if e.val is not None), key=lambda b: b[0].top1, default=None)
    best_ema = max(((e.ema, e.epoch) for e in epochs if e.ema is not None), key=lambda b: b[0].top1, default=None)
    return TrainingResult(
        tuple(epochs),
        seconds,
        best_epoch=None if best is None else best[1],
        best_top1=None if best is None else best[0].top1,
        best_top5=None if best is None else best[0].top5,
        skipped=sum(e.skipped for e in epochs),
        best_ema_epoch=None if best_ema is None else best_ema[1],
        best_ema_top1=None if best_ema is None else best_ema[0].top1,
    )
