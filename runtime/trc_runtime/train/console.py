"""What people see: a progress bar on a terminal, one plain line an epoch elsewhere, and a table at the end."""

from __future__ import annotations

import logging
import sys

from rich import box
from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from trc_runtime.data.dataset import Dataset
from trc_runtime.schema.plan import Plan
from trc_runtime.train.metrics import EpochResult, TrainingResult


def setup_logging(level: int) -> None:
    """Show messages of the loggers "trc" and below from `level` up, on standard error."""
    logger = logging.getLogger("trc")
    logger.setLevel(level)
    logger.propagate = False
    for old in list(logger.handlers):
        logger.removeHandler(old)
    if sys.stderr.isatty():
        handler: logging.Handler = RichHandler(
            console=Console(stderr=True), show_path=False, show_time=False, markup=False
        )
        handler.setFormatter(logging.Formatter("%(message)s"))
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s: %(name)s: %(message)s"))
    logger.addHandler(handler)


def percent(share: float) -> str:
    """A share as per cent with two decimals."""
    return f"{100 * share:.2f}"


def _row(result: EpochResult, ema: bool) -> tuple[str, ...]:
    val, averaged = result.val, result.ema
    return (
        str(result.epoch),
        f"{result.train_loss:.4f}",
        percent(result.train_top1),
        f"{val.loss:.4f}" if val else "-",
        percent(val.top1) if val else "-",
        percent(val.top5) if val else "-",
        *((f"{averaged.loss:.4f}", percent(averaged.top1)) if averaged else ("-", "-") if ema else ()),
        f"{result.rate:.3g}",
        str(result.skipped) if result.skipped else "-",
        f"{result.train_samples / max(result.train_seconds, 1e-9):,.0f}",
        f"{result.seconds:.1f}",
    )


_COLUMNS = ("epoch", "train loss", "train top-1", "val loss", "val top-1", "val top-5")
_EMA_COLUMNS = ("ema loss", "ema top-1")
_LAST_COLUMNS = ("rate", "skipped", "samples/s", "s")


class ConsoleListener:
    """A listener that shows a run. `quiet` shows the table only where the caller asks for it (`table`)."""

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._tty = sys.stderr.isatty()
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def start(self, plan: Plan, data: Dataset, first_epoch: int, epochs: int, steps: int) -> None:
        """Say what begins."""
        if self._quiet:
            return
        c = plan.config
        print(
            f"{plan.name}: {data.name}, {len(data.train)} + {len(data.val)} samples, batch {c.batch}, "
            f"{c.precision.value}, {plan.total / 2**20:.1f} MiB",
            flush=True,
        )
        if first_epoch > 1:
            print(f"continues with epoch {first_epoch} of {epochs}", flush=True)
        if self._tty:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._progress.start()
            self._task = self._progress.add_task(f"epoch {first_epoch}/{epochs}", total=steps)

    def step(self, epoch: int, done: int, steps: int) -> None:
        """Move the bar."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done)

    def epoch(self, result: EpochResult, epochs: int) -> None:
        """Write the epoch's line."""
        if self._progress is not None and self._task is not None:
            self._progress.update(
                self._task, description=f"epoch {min(result.epoch + 1, epochs)}/{epochs}", completed=0
            )
        elif not self._quiet:
            val = f" val_loss {result.val.loss:.4f} top1 {percent(result.val.top1)}" if result.val else ""
            if result.ema:
                val += f" ema_top1 {percent(result.ema.top1)}"
            skipped = f" skipped {result.skipped}" if result.skipped else ""
            print(
                f"epoch {result.epoch}/{epochs} loss {result.train_loss:.4f}{val} rate {result.rate:.3g}{skipped} "
                f"{result.seconds:.1f} s",
                flush=True,
            )

    def done(self, result: TrainingResult) -> None:
        """Take the bar away."""
        self.close()

    def close(self) -> None:
        """Give the terminal back, also after an error."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def table(self, result: TrainingResult) -> None:
        """Print the results of all epochs as a table."""
        if self._quiet:
            return
        tty = sys.stdout.isatty()
        table = Table(box=box.SIMPLE_HEAVY if tty else box.ASCII2)
        ema = result.last_ema is not None
        for column in (*_COLUMNS, *(_EMA_COLUMNS if ema else ()), *_LAST_COLUMNS):
            table.add_column(column, justify="right")
        for epoch in result.epochs:
            best = epoch.epoch == result.best_epoch
            table.add_row(*_row(epoch, ema), style="bold" if best and tty else None)
        # Without a terminal the width is not a reader's: never wrap.
        Console(width=None if tty else 150 if ema else 120).print(table)
        if result.best_epoch is not None and result.best_top1 is not None:
            print(f"best: epoch {result.best_epoch}, top-1 {percent(result.best_top1)} %")
        if result.best_ema_epoch is not None and result.best_ema_top1 is not None:
            print(f"best moving average: epoch {result.best_ema_epoch}, top-1 {percent(result.best_ema_top1)} %")
