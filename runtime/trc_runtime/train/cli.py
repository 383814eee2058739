"""The command line that `python -m trc_runtime` and `trc-run` share: options, and what the actions do."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from trc_runtime.data import fetch
from trc_runtime.data.dataset import NORMALISATIONS, Dataset, load_folder
from trc_runtime.data.idx import DataError
from trc_runtime.data.loader import Batch, Filler
from trc_runtime.data.synthetic import TRAIN_SAMPLES, VAL_SAMPLES, synthetic
from trc_runtime.schema.bundle import BundleError
from trc_runtime.schema.config import Normalise, RunConfig
from trc_runtime.train.average import AverageError
from trc_runtime.train.checkpoint import CheckpointError
from trc_runtime.train.console import ConsoleListener, percent, setup_logging
from trc_runtime.train.jsonlog import JsonLog
from trc_runtime.train.metrics import EvalResult
from trc_runtime.train.runner import Runner
from trc_runtime.train.schedules import ScheduleError

LOG = logging.getLogger("trc.train")

USER_ERRORS: tuple[type[Exception], ...] = (DataError, BundleError, CheckpointError, ScheduleError, AverageError)
"""What a user's mistake raises here; each message stands by itself."""


class UsageError(ValueError):
    """Options that do not go together."""


def positive(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, not '{text}'")
    return value


class Parser(argparse.ArgumentParser):
    """A parser whose errors end the program with code 1, as every user's mistake does; options are not shortened."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_abbrev=False, **kwargs)

    def error(self, message: str) -> NoReturn:
        """Print usage and message, and exit."""
        self.print_usage(sys.stderr)
        print(f"{self.prog}: error: {message}", file=sys.stderr)
        sys.exit(1)


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """Options that say which data to use, and those of `add_output_options`."""
    parser.add_argument(
        "--data",
        default="mnist",
        metavar="NAME|DIR",
        help="mnist, fashion-mnist (fetched when they are not here), synthetic, or a folder of four IDX files",
    )
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="where to look first for the files of a named set")
    parser.add_argument(
        "--normalise",
        choices=sorted(NORMALISATIONS),
        help="mean and deviation for a folder (default: those that a bundle was compiled for, or measured)",
    )
    add_output_options(parser)


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Options that say how much to say, and where."""
    parser.add_argument("--log", type=Path, metavar="FILE.jsonl", help="write JSON lines, one event each")
    volume = parser.add_mutually_exclusive_group()
    volume.add_argument("-q", "--quiet", action="store_true", help="only warnings and the last line")
    volume.add_argument("-v", "--verbose", action="count", default=0, help="say more; twice for everything")


def add_bench_options(parser: argparse.ArgumentParser) -> None:
    """Options of a measurement."""
    parser.add_argument("--steps", type=positive, default=50, metavar="N", help="steps to time (default 50)")
    add_output_options(parser)


def add_train_options(parser: argparse.ArgumentParser) -> None:
    """Options of a training run."""
    parser.add_argument("--epochs", type=positive, metavar="N", help="epochs in all (default: as compiled, or 5)")
    parser.add_argument("--checkpoint", type=Path, metavar="FILE", help="write a checkpoint here after every epoch")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="continue from a checkpoint")
    parser.add_argument("--validate-every", type=positive, default=1, metavar="N", help="validate every N epochs")


def add_eval_options(parser: argparse.ArgumentParser) -> None:
    """Options of an evaluation."""
    parser.add_argument("--checkpoint", type=Path, metavar="FILE", help="take the parameters from this file")
    parser.add_argument(
        "--ema", dest="average", action="store_true", help="evaluate the moving average of the weights instead"
    )


def check_data_options(args: argparse.Namespace) -> None:
    """UsageError for an option that the chosen data would leave without effect."""
    name: str = args.data
    if args.normalise and (name in fetch.PUBLISHED or name == "synthetic"):
        raise UsageError(f"--normalise is for folders; {name} data has its own mean and deviation")
    if args.data_dir is not None and name not in fetch.PUBLISHED:
        raise UsageError(f"--data-dir is for {' and '.join(fetch.PUBLISHED)}; --data {name} looks into no other folder")


def load_data(args: argparse.Namespace, normalise: Normalise | None = None) -> Dataset:
    """The data that the options name, except synthetic data, which takes its shape from the network.

    `normalise` is for a folder where the options do not say it.
    """
    name: str = args.data
    check_data_options(args)
    if normalise is not None and len(normalise.mean) != 1:
        normalise = None  # a folder's images are grey and will be refused for their shape
    given = NORMALISATIONS[args.normalise] if args.normalise else normalise
    if name in fetch.PUBLISHED:
        return fetch.load(name, args.data_dir)
    folder = Path(name)
    if not folder.is_dir():
        raise DataError(f"--data {name}: neither {', '.join(fetch.PUBLISHED)}, synthetic nor a folder")
    data = load_folder(folder, given)
    if given is None:
        LOG.info("%s: measured mean and deviation: %s", folder, data.train.normalisation)
    return data


def data_for(config: RunConfig, args: argparse.Namespace) -> Dataset:
    """The data that the options name for a network that is compiled already, normalised as that does it."""
    check_data_options(args)
    return synthetic_for(config) if args.data == "synthetic" else load_data(args, config.normalise)


def synthetic_for(config: RunConfig) -> Dataset:
    """Synthetic data of a network's shape and classes, and of as many samples as it is compiled for."""
    samples = config.train_samples or TRAIN_SAMPLES, config.val_samples or VAL_SAMPLES
    return synthetic(config.input, config.num_classes, *samples, normalisation=config.normalise)


def bench_data(config: RunConfig) -> Dataset:
    """Synthetic data for one training batch."""
    (h, w), c = config.train_resolution[0], config.input[2]
    return synthetic((h, w, c), config.num_classes, train=config.batch, val=1, normalisation=config.normalise)


def train(runner: Runner, data: Dataset, args: argparse.Namespace) -> None:
    """Train, print the table and the line `top1=... epochs=... seconds=...`."""
    if args.resume is not None:
        runner.load_checkpoint(args.resume)
    console = ConsoleListener(args.quiet)
    log = JsonLog(args.log, append=args.resume is not None) if args.log else None
    done = runner.epoch
    try:
        result = runner.run(
            data,
            args.epochs,
            listeners=(console, log) if log else (console,),
            checkpoint_to=args.checkpoint,
            validate_every=args.validate_every,
        )
        last, ema = result.last, result.last_ema
        if last is None:  # a resumed run with nothing left to do
            LOG.warning("%d epochs are done already: nothing to train", done)
            last, ema = runner.validate(data.val)
            if args.checkpoint is not None:
                runner.save_checkpoint(args.checkpoint)
    finally:
        console.close()
        if log is not None:
            log.close()
    console.table(result)
    averaged = "" if ema is None else f"ema_top1={100 * ema.top1:.1f} "
    print(f"top1={100 * last.top1:.1f} {averaged}epochs={len(result.epochs)} seconds={result.seconds:.1f}")


def evaluate(runner: Runner, data: Dataset, args: argparse.Namespace) -> None:
    """Evaluate, and print the line `top1=... loss=... samples=...`."""
    if args.checkpoint is not None:
        runner.load_parameters(args.checkpoint, ema=args.average)
    # The average of a checkpoint has become the parameters.
    result: EvalResult = runner.evaluate(data.val, ema=args.average and args.checkpoint is None)
    if args.log:
        log = JsonLog(args.log)
        log.eval(result, data=data.name, **({"ema": True} if args.average else {}))
        log.close()
    if not args.quiet:
        what = " (moving average)" if args.average else ""
        print(f"{runner.plan.name}{what}: {data.name}: top-1 {percent(result.top1)} %, top-5 {percent(result.top5)} %")
    print(f"top1={100 * result.top1:.1f} loss={result.loss:.4f} samples={result.samples}")


def bench(runner: Runner, args: argparse.Namespace) -> None:
    """Time training steps and inference on a full batch of the compiled shape; print minimum and median."""
    spec, config = runner.plan.variants[0], runner.plan.config
    filler, batch = Filler(bench_data(config).train, config.normalise), Batch(0, 0, spec.batch)
    feeder, group = runner.feeder, 10 if runner.feeder.overlaps else 1

    def steps() -> None:
        for _ in feeder.each("train", filler, [(batch, 0)] * group):
            pass
        feeder.wait()

    times = [t / group for t in _times(steps, -(-args.steps // group))]
    least, middle = times[0] * 1e3, times[len(times) // 2] * 1e3
    if not args.quiet:
        print(
            f"{runner.plan.name}: {args.steps} training steps of {spec.batch} samples, arena {runner.plan.total} bytes"
        )
    if args.log:
        log = JsonLog(args.log)
        log.write("bench", steps=args.steps, batch=spec.batch, min_ms=least, median_ms=middle)
        log.close()
    print(f"step_ms_min={least:.3f} step_ms_median={middle:.3f} samples_per_s={spec.batch / middle * 1e3:.0f}")


def _times(work: Callable[[], None], count: int) -> list[float]:
    for _ in range(3):  # the first steps bind kernels and fault memory in
        work()
    result: list[float] = []
    for _ in range(count):
        begin = time.perf_counter()
        work()
        result.append(time.perf_counter() - begin)
    return sorted(result)


def guarded(prog: str, action: Callable[[], None], more: tuple[type[Exception], ...] = (), debug: bool = False) -> int:
    """Run an action; 0, or 1 after a mistake and 130 after Ctrl-C, each with one message and no traceback.

    With `debug` a fault of trc itself is raised; otherwise -vv shows where it is.
    """
    errors: tuple[type[Exception], ...] = (*USER_ERRORS, UsageError, *more)
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison]  # closed: `2>&-`
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
        print(f"{prog}: error: standard output is closed", file=sys.stderr)
        return 1
    try:
        action()
        sys.stdout.flush()  # a full disk, or a reader that is gone, shows here and not at the end of the process
    except errors as err:
        text = str(err)
        print(text if "error:" in text else f"{prog}: error: {text}", file=sys.stderr)
        return 1
    except MemoryError as err:
        print(f"{prog}: error: {str(err) or 'out of memory'}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{prog}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        _discard_output()  # the reader of our output is gone: nothing to tell
        return 1
    except OSError as err:
        where = f"{err.filename}: " if err.filename else ""
        print(f"{prog}: error: {where}{err.strerror or err}", file=sys.stderr)
        _discard_output()
        return 1
    except Exception as err:
        if debug:
            raise
        LOG.debug("internal error", exc_info=True)
        print(
            f"{prog}: error: trc failed inside: {type(err).__name__}: {err} (-vv or --debug shows where)",
            file=sys.stderr,
        )
        return 1
    return 0


def _discard_output() -> None:
    """Send what is still buffered for standard output nowhere: writing it would fail once more at the end."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def begin(args: argparse.Namespace) -> None:
    """Set the level of logging that the options ask for."""
    verbose: int = args.verbose
    quiet: bool = args.quiet
    levels = (logging.WARNING, logging.INFO, logging.DEBUG)
    setup_logging(logging.WARNING if quiet else levels[min(verbose, 2)])
