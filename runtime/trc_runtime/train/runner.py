"""The loop: steps, evaluations and runs over a session, whichever device it is on."""

from __future__ import annotations

import logging
import math
import operator
import os
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, SupportsIndex, cast

import numpy as np
from numpy.typing import NDArray

from trc_runtime.data.dataset import Dataset, Split
from trc_runtime.data.idx import DataError
from trc_runtime.data.loader import Batch, Batches, Filler, check_normalise
from trc_runtime.schema.config import Normalise
from trc_runtime.schema.dtypes import DType
from trc_runtime.schema.graphs import Variant
from trc_runtime.schema.plan import Plan, Step
from trc_runtime.schema.regions import Region
from trc_runtime.train import checkpoint
from trc_runtime.train.average import Average
from trc_runtime.train.feeding import Feeder, Session
from trc_runtime.train.metrics import EpochResult, EvalResult, StepResult, TrainingResult, summarise
from trc_runtime.train.schedules import Rates, ScheduleError, fit_table, rate_table
from trc_runtime.train.tensors import Tensors

LOG = logging.getLogger("trc.train")

_TRAIN = (Variant.TRAIN_BASE, Variant.TRAIN_LAST, Variant.TRAIN_LOWRES, Variant.TRAIN_LOWRES_LAST)


class Listener(Protocol):
    """Told what happens in a run. Numbers of epochs count from 1."""

    def start(self, plan: Plan, data: Dataset, first_epoch: int, epochs: int, steps: int) -> None:
        """Training begins at `first_epoch`, to end with epoch `epochs`; an epoch has `steps` steps."""
        ...

    def step(self, epoch: int, done: int, steps: int) -> None:
        """`done` of the epoch's steps have been launched."""
        ...

    def epoch(self, result: EpochResult, epochs: int) -> None:
        """An epoch is over, its validation included."""
        ...

    def done(self, result: TrainingResult) -> None:
        """The run is over."""
        ...


class Runner:
    """Trains and evaluates a plan on a session, which it initialises (without `draw`, parameters stay zero).

    `epoch` counts the epochs that `run` has completed, those before a resumed checkpoint included.
    """

    def __init__(self, plan: Plan, session: Session, *, draw: bool = True) -> None:
        self.plan = plan
        self.session = session
        self.epoch = 0
        self._normalise = plan.config.normalise
        session.initialise(draw=draw)
        self._limit = _largest(plan)
        self.average = Average(plan)
        self.tensors = Tensors(plan, session, self._assigned)
        self._steps: dict[str, Step] = {s.name: s for s in plan.steps}
        self._names = {t.name for t in plan.tensors}
        self.feeder = Feeder(plan, session)
        self._rates: Rates | None = None
        self._rate_problem: ScheduleError | None = None
        self._set_rates(plan.config.epochs, self._compiled_steps())
        self._parameters_changed()

    # ------------------------------------------------------------ single steps

    def step(self, images: NDArray[Any], labels: NDArray[Any]) -> StepResult:
        """Train on one batch of images [n, h, w, c] and labels [n].

        The images are normalised floating-point numbers, or unsigned bytes where the network was compiled with
        `normalise`. n, h and w must be those of a training variant. DataError for anything else, for labels outside the
        classes and for images that are not finite. Returns when the step is done.
        """
        if self._rate_problem is not None:
            raise self._rate_problem
        split = _as_split(images, labels, self._normalise)
        column = self._train_column(split)
        split.check_labels(self.plan.config.num_classes)
        split.check_finite(self._limit)
        filler = Filler(split, self._normalise)
        self.launch("train", filler, Batch(0, 0, len(split)), column)
        return StepResult(
            self._scalar("loss"),
            round(self._scalar("top1")),
            round(self._scalar("top5")),
            bool(self._scalar("has_nan")),
        )

    def _train_column(self, split: Split) -> int:
        for variant in _TRAIN:
            spec = self.plan.variants[variant.value]
            if (spec.batch, spec.height, spec.width, spec.channels) == split.images.shape:
                return variant.value
        shapes = dict.fromkeys(
            f"{s.batch} x {s.height} x {s.width} x {s.channels}" for s in self.plan.variants[: len(_TRAIN)]
        )
        found = " x ".join(map(str, split.images.shape))
        raise DataError(
            f"a batch of images {found} (samples x height x width x channels) fits no training variant; "
            f"this network was compiled for {' and '.join(shapes)}"
        )

    # ------------------------------------------------------------ evaluation

    def evaluate(
        self, images: Split | NDArray[Any], labels: NDArray[Any] | None = None, *, ema: bool = False
    ) -> EvalResult:
        """Loss and accuracy over a split, or over images [n, h, w, c] as `step` takes them with labels [n].

        Samples are taken in order. An incomplete last batch must be the compiled one (`val_samples`); where the plan
        knows no sample count, an incomplete batch is left out and `samples` says how many were counted. With `ema` the
        moving average of the weights is evaluated; AverageError where none is kept.
        """
        if ema:
            self.average.require()
        return self._evaluate(images, labels, ("infer_ema",) if ema else ("infer",))[0]

    def evaluate_both(
        self, images: Split | NDArray[Any], labels: NDArray[Any] | None = None
    ) -> tuple[EvalResult, EvalResult]:
        """`evaluate` with the weights and with their moving average, in one pass over the data."""
        self.average.require()
        weights, average = self._evaluate(images, labels, ("infer", "infer_ema"))
        return weights, average

    def validate(self, val: Split) -> tuple[EvalResult, EvalResult | None]:
        """What follows an epoch: `evaluate_both`, or `evaluate` and None where no moving average is kept."""
        return self.evaluate_both(val) if self.average else (self.evaluate(val), None)

    def _evaluate(
        self, images: Split | NDArray[Any], labels: NDArray[Any] | None, kinds: tuple[str, ...]
    ) -> list[EvalResult]:
        """One pass with a step of each kind on every batch; the results by kind."""
        if isinstance(images, Split):
            split = images
        elif labels is None:
            raise DataError("evaluate needs labels beside the images")
        else:
            split = _as_split(images, labels, self._normalise)
        batches = self._cut_val(split)
        filler = Filler(split, self._normalise)
        split.check_labels(self.plan.config.num_classes)
        split.check_finite(self._limit)
        self._run_if_present("fold_bn")
        if "infer_ema" in kinds:
            self._run_if_present("cast_ema")
        self._run_if_present("clear_metrics")
        base, last = Variant.VAL_BASE.value, Variant.VAL_LAST.value
        pairs = ((b, base if b.size == batches.batch else last) for b in batches)
        *before, kind = kinds
        for _ in self.feeder.each(kind, filler, pairs, before[0] if before else None):
            pass
        return [self._result(_SUMS[kind], batches.samples) for kind in kinds]

    def _result(self, sums: str, n: int) -> EvalResult:
        loss, top1, top5 = (self._scalar(f"{sums}_{x}") / n for x in ("loss", "top1", "top5"))
        return EvalResult(loss, top1, top5, n)

    def _cut_val(self, split: Split) -> Batches:
        base, last = self.plan.variants[Variant.VAL_BASE.value], self.plan.variants[Variant.VAL_LAST.value]
        self._check_shape(split, (base.height, base.width, base.channels), "validation")
        return self._cut(split, base.batch, last.batch, self.plan.config.val_samples, "val_samples")

    @staticmethod
    def _cut(split: Split, batch: int, last: int, compiled: int | None, option: str) -> Batches:
        rest = len(split) % batch
        if rest and rest != last and compiled is not None:
            raise DataError(
                f"{len(split)} samples are {len(split) // batch} batches of {batch} and {rest} more, but the last "
                f"batch was compiled for {last}: compile with {option}={len(split)}"
            )
        keep = compiled is not None
        if rest and not keep:
            LOG.warning(
                "%d samples are %d full batches of %d: the last %d are left out (compile with %s=%d to use them)",
                len(split), len(split) // batch, batch, rest, option, len(split),
            )  # fmt: skip
        batches = Batches.cut(len(split), batch, keep)
        if not batches.steps:
            raise DataError(
                f"{len(split)} samples do not fill one batch of {batch}: compile with {option}={len(split)}"
            )
        return batches

    @staticmethod
    def _check_shape(split: Split, wanted: tuple[int, int, int], what: str) -> None:
        if split.shape != wanted:
            h, w, c = split.shape
            raise DataError(
                f"{what} images are {h} x {w} x {c}, the network was compiled for "
                f"{wanted[0]} x {wanted[1]} x {wanted[2]} (height x width x channels)"
            )

    # ------------------------------------------------------------ runs

    def run(
        self,
        data: Dataset,
        epochs: int | None = None,
        *,
        listeners: Sequence[Listener] = (),
        checkpoint_to: str | os.PathLike[str] | None = None,
        validate_every: int = 1,
    ) -> TrainingResult:
        """Train until `epochs` epochs (default: as compiled) have been done in all, and validate.

        A run that was resumed continues where its checkpoint was written, and gives the same bytes as one that was
        never stopped. The last epoch is always validated. With `checkpoint_to` each epoch ends with a checkpoint
        there, which replaces the one before.
        """
        config = self.plan.config
        epochs = config.epochs if epochs is None else epochs
        if epochs is None:
            raise ScheduleError("the number of epochs is unknown: give epochs= (--epochs)")
        epochs, validate_every = _whole("epochs", epochs), _whole("validate_every", validate_every)
        if not isinstance(cast(object, data), Dataset):
            raise DataError(f"run takes a trc_runtime.data.dataset.Dataset, not {type(data).__name__}")
        if epochs < 1 or validate_every < 1:
            raise ScheduleError(f"epochs and validate_every must be at least 1, not {epochs} and {validate_every}")
        batches = self._prepare(data, epochs)
        if checkpoint_to is not None:
            checkpoint.check_writable(Path(checkpoint_to))
        began, results, filler = time.perf_counter(), list[EpochResult](), Filler(data.train, self._normalise)
        for listener in listeners:
            listener.start(self.plan, data, self.epoch + 1, epochs, batches.steps)
        while self.epoch < epochs:
            validate = self.epoch + 1 == epochs or (self.epoch + 1) % validate_every == 0
            result = self._epoch(filler, batches, data.val if validate else None, listeners)
            results.append(result)
            if checkpoint_to is not None:
                self.save_checkpoint(checkpoint_to)
            for listener in listeners:
                listener.epoch(result, epochs)
        outcome = summarise(results, time.perf_counter() - began)
        for listener in listeners:
            listener.done(outcome)
        return outcome

    def _prepare(self, data: Dataset, epochs: int) -> Batches:
        """Check everything that can be wrong before the first step, and write the rates."""
        config, base = self.plan.config, self.plan.variants[Variant.TRAIN_BASE.value]
        if config.train_samples not in (None, len(data.train)):
            raise DataError(
                f"the network was compiled for {config.train_samples} training samples, {data.name} has "
                f"{len(data.train)}: compile with train_samples={len(data.train)}"
            )
        self._check_shape(data.train, (base.height, base.width, base.channels), "training")
        self._cut_val(data.val)
        for split in (data.train, data.val):
            check_normalise(split, self._normalise)
            split.check_labels(config.num_classes)
            split.check_finite(self._limit)
        last = self.plan.variants[Variant.TRAIN_LAST.value].batch
        batches = self._cut(data.train, base.batch, last, config.train_samples, "train_samples")
        if config.epochs is not None and epochs <= config.epochs:
            self._set_rates(config.epochs, batches.steps)  # the first epochs of the compiled schedule
        else:
            self._set_rates(epochs, batches.steps)
        if self._rate_problem is not None:
            raise self._rate_problem
        return batches

    def _epoch(self, filler: Filler, batches: Batches, val: Split | None, listeners: Sequence[Listener]) -> EpochResult:
        began, number = time.perf_counter(), self.epoch + 1
        rate = self._rate_now()
        filler.shuffle(self.plan.config.seed, self.epoch)
        self._run_if_present("clear_metrics")
        # Full and last batches weigh differently: count between them, or at once where all are last ones.
        applied = [self._counter("applied")] * (1 if batches.full or not batches.last else 2)
        base, last = Variant.TRAIN_BASE.value, Variant.TRAIN_LAST.value
        pairs = ((b, base if b.size == batches.batch else last) for b in batches)
        for batch in self.feeder.each("train", filler, pairs):
            if batches.last and batch.index == batches.full - 1:
                applied.append(self._counter("applied"))
            for listener in listeners:
                listener.step(number, batch.index + 1, batches.steps)
        applied.append(self._counter("applied"))
        counts = [b - a for a, b in pairwise(applied)]
        samples = sum(n * size for n, size in zip(counts, (batches.batch, batches.last), strict=False))
        skipped = batches.steps - sum(counts)
        if skipped:
            LOG.warning("epoch %d: %d of %d steps were skipped (a gradient was NaN or infinite)", number, skipped,
                        batches.steps)  # fmt: skip
        loss, top1 = (self._scalar(f"accum_{x}") / samples if samples else float("nan") for x in ("loss", "top1"))
        middle = time.perf_counter()
        evaluation, ema = self.validate(val) if val is not None else (None, None)
        self.epoch = number
        end = time.perf_counter()
        return EpochResult(number, rate, loss, top1, samples, skipped, evaluation, middle - began, end - began, ema)

    # ------------------------------------------------------------ state

    def save_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Write everything that a run needs to continue, to a safetensors file, atomically."""
        checkpoint.save(Path(path), self.plan, self.session, self.epoch)

    def load_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Continue from a checkpoint of the same network and settings; CheckpointError names what differs."""
        self.restore(checkpoint.read(Path(path)))

    def restore(self, saved: checkpoint.Saved) -> None:
        """Continue from a checkpoint that has been read."""
        self.epoch = checkpoint.restore(saved, self.plan, self.session)
        self._parameters_changed()

    def save_parameters(self, path: str | os.PathLike[str], *, ema: bool = False) -> None:
        """Write parameters and running statistics only, to a safetensors file, atomically.

        With `ema` their moving averages, under the names of what they are the averages of; AverageError where none is
        kept.
        """
        if ema:
            self.average.require()
        checkpoint.save_parameters(Path(path), self.plan, self.session, ema=ema)

    def load_parameters(self, path: str | os.PathLike[str], *, ema: bool = False) -> None:
        """Take parameters and running statistics from a checkpoint or a file of parameters.

        With `ema` the moving averages that a checkpoint holds become the parameters (this network need not keep one).
        A moving average that this network keeps begins anew with what was taken.
        """
        checkpoint.load_parameters(Path(path), self.plan, self.session, ema=ema)
        self._parameters_replaced()

    def checkpoint_bytes(self) -> bytes:
        """What `save_checkpoint` writes (also a bundle's state.safetensors)."""
        return checkpoint.dump(self.plan, self.session, self.epoch)

    def _parameters_changed(self) -> None:
        self._run_if_present("cast_main")

    def _parameters_replaced(self) -> None:
        """All parameters come from elsewhere: their average begins with them."""
        self._parameters_changed()
        self.average.restart(self.session)

    def _assigned(self, name: str) -> None:
        """A user has set a parameter or a running statistic. Before the first step that is where its average begins."""
        self._parameters_changed()
        if self.average and self._counter("applied") == 0:
            self.average.follow(self.session, name)

    # ------------------------------------------------------------ helpers

    def _compiled_steps(self) -> int | None:
        config = self.plan.config
        return None if config.train_samples is None else -(-config.train_samples // (config.batch * config.world_size))

    def _set_rates(self, epochs: int | None, steps: int | None) -> None:
        """Write the rate table; a problem is kept for the first step, since evaluation needs no rate."""
        self._rates, self._rate_problem = None, None
        table = next((t for t in self.plan.tensors if t.name == "lr_table"), None)
        try:
            rates = rate_table(self.plan.config.schedule, epochs, steps)
            if table is not None:
                shape = next(s for s in table.shapes if s is not None)
                self.session.write("lr_table", fit_table(rates, shape[-1]).reshape(shape).astype(table.dtype.numpy))
            self._rates = rates
        except ScheduleError as err:
            self._rate_problem = err

    def _rate_now(self) -> float:
        rates = self._rates
        return float("nan") if rates is None else float(rates[min(self._counter("iteration"), len(rates) - 1)])

    def launch(self, kind: str, filler: Filler, batch: Batch, column: int) -> None:
        """Fill the other input buffer with a batch, copy it, and run a "train" or "infer" step on it, unchecked."""
        self.feeder.one(kind, filler, batch, column)

    def _run_if_present(self, name: str) -> None:
        step = self._steps.get(name)
        if step is not None:
            self.session.run(name, step.columns[0] if step.columns else 0)

    def _scalar(self, name: str) -> float:
        return float(self.session.read(name).reshape(-1)[0])

    def _counter(self, name: str) -> int:
        return int(self.session.read(name).reshape(-1)[0])


_SUMS = {"infer": "accum", "infer_ema": "accum_ema"}
"""What the names of the sums of an inference step begin with."""

_LARGEST = {
    DType.F16: float(np.finfo(np.float16).max),
    DType.BF16: (2 - 2.0**-7) * 2.0**127,
    DType.F32: float(np.finfo(np.float32).max),
}


def _largest(plan: Plan) -> float:
    """The largest number that the images' type can hold: a larger one would become infinity."""
    dtype = next((t.dtype for t in plan.tensors if t.region is Region.I_A_DATA), DType.F32)
    return _LARGEST.get(dtype, math.inf)


def _array(what: str, given: object) -> NDArray[Any]:
    try:
        return np.asarray(given)
    except ValueError as err:
        raise DataError(f"the {what} are not one array: {err}") from None


def _whole(what: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise ScheduleError(f"{what} must be a whole number, not {value!r}")
    return operator.index(value)


def _as_split(images: NDArray[Any], labels: NDArray[Any], normalise: Normalise | None) -> Split:
    """Check the types of a user's arrays for a plan that normalises or not; what they hold is checked later."""
    images, labels = _array("images", images), _array("labels", labels)
    if images.dtype == np.uint8 and normalise is None:
        raise DataError(
            "images are unsigned bytes: compile with normalise=trc.Normalise(mean, std), or normalise them first, as "
            "(x / 255 - mean) / std in float32"
        )
    if not np.issubdtype(labels.dtype, np.integer):
        raise DataError(f"labels must be whole numbers, not {labels.dtype}")
    # Compared before the conversion, which would wrap.
    wrong = np.flatnonzero((labels.reshape(-1) < 0) | (labels.reshape(-1) >= 1 << 31))
    if wrong.size:
        raise DataError(f"label {wrong[0]} is {labels.reshape(-1)[wrong[0]]}: not a class")
    split = Split(images, labels.astype(np.int32), normalise)
    check_normalise(split, normalise)
    return split
