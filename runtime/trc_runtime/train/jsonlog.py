"""A log of a run as JSON lines: one object an event, for programs to read."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO, cast

from trc_runtime.data.dataset import Dataset
from trc_runtime.schema.codec import to_json
from trc_runtime.schema.plan import Plan
from trc_runtime.train.metrics import EpochResult, EvalResult, TrainingResult


def _finite(value: object) -> object:
    """The value with null for numbers that JSON cannot spell."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in cast(dict[str, object], value).items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in cast(list[object], value)]
    return value


def _drop_torn_line(path: Path) -> None:
    """Cut a last line without end, which a killed run may have left: what is appended would become part of it."""
    if not path.is_file():
        return
    with path.open("r+b") as file:
        text = file.read()
        if not text.endswith(b"\n"):
            file.truncate(text.rfind(b"\n") + 1)


class JsonLog:
    """A listener that writes `config`, `epoch`, `eval` and `done` events, each on a line of its own at once.

    The file appears with the first event; `append` continues an older one (for resumed runs).
    """

    def __init__(self, path: str | os.PathLike[str], append: bool = False) -> None:
        self._path = Path(path)
        self._append = append
        self._file: TextIO | None = None

    def write(self, event: str, **values: Any) -> None:
        """Write an event."""
        if self._file is None:
            if self._append:
                _drop_torn_line(self._path)
            self._file = self._path.open("a" if self._append else "w", encoding="utf-8")
        line = json.dumps({"event": event} | cast(dict[str, Any], _finite(values)), allow_nan=False)
        self._file.write(line + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def start(self, plan: Plan, data: Dataset, first_epoch: int, epochs: int, steps: int) -> None:
        """Write the run's settings."""
        samples = {"train": len(data.train), "val": len(data.val)}
        self.write("config", plan=plan.name, data=data.name, samples=samples, first_epoch=first_epoch, epochs=epochs,
                   steps_per_epoch=steps, config=to_json(plan.config))  # fmt: skip

    def step(self, epoch: int, done: int, steps: int) -> None:
        """Steps are not written."""

    def epoch(self, result: EpochResult, epochs: int) -> None:
        """Write an epoch, and its validation as an event of its own."""
        values = asdict(result)
        del values["val"], values["ema"]
        self.write("epoch", **values)
        if result.val is not None:
            ema = {} if result.ema is None else {f"ema_{k}": v for k, v in asdict(result.ema).items() if k != "samples"}
            self.eval(result.val, epoch=result.epoch, **ema)

    def eval(self, result: EvalResult, **values: Any) -> None:
        """Write an evaluation."""
        self.write("eval", **values, **asdict(result))

    def done(self, result: TrainingResult) -> None:
        """Write the outcome."""
        last, ema = result.last, result.last_ema
        averaged = {} if ema is None else {"ema_top1": ema.top1, "best_ema_top1": result.best_ema_top1,
                                           "best_ema_epoch": result.best_ema_epoch}  # fmt: skip
        self.write("done", epochs=len(result.epochs), seconds=result.seconds, skipped=result.skipped,
                   top1=last.top1 if last else None, best_top1=result.best_top1, best_top5=result.best_top5,
                   best_epoch=result.best_epoch, **averaged)  # fmt: skip
