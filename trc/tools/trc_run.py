"""trc-run: train, evaluate and time a BluePrint or a bundle."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trc.blueprint import load_blueprint
from trc.diagnostics import CompileError
from trc.session import CompileOptions, Executable, compile, load
from trc_runtime.data.dataset import Dataset
from trc_runtime.data.synthetic import TRAIN_SAMPLES, VAL_SAMPLES, synthetic
from trc_runtime.schema.config import SGD, CrossEntropy
from trc_runtime.train import choices, cli
from trc_runtime.train.checkpoint import label_smoothing
from trc_runtime.train.choices import ChoiceError
from trc_runtime.train.cli import Parser, UsageError

PROG = "trc-run"

# The defaults are the recipe of the articles' MNIST example, with a rate and a warm-up for few epochs.
_EPOCHS = 5
_BATCH = 200
_OPTIMIZER = "adamw"
_WEIGHT_DECAY = 1e-4
_SCHEDULE = "cosine"
_SMOOTHING = 0.1

_COMPILING = (
    "batch",
    "val_batch",
    "input",
    "precision",
    "target",
    "seed",
    "optimizer",
    "weight_decay",
    "base_lr",
    "schedule",
    "warmup",
    "label_smoothing",
)
"""Options that only make sense when a BluePrint is compiled."""


def _input_size(text: str) -> tuple[int, int, int]:
    parts = text.replace("x", ",").split(",")
    if len(parts) != 3:
        raise argparse.ArgumentTypeError(f"expected HEIGHT,WIDTH,CHANNELS, not '{text}'")
    h, w, c = (cli.positive(p) for p in parts)
    return h, w, c


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, not '{text}'") from None


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 1 << 64:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 to 2**64 - 1, not '{text}'")
    return int(text)


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", type=Path, help="a .bp file, or the folder of a bundle")
    parser.add_argument("--batch", type=cli.positive, metavar="N", help=f"training batch (default {_BATCH})")
    parser.add_argument("--val-batch", type=cli.positive, metavar="N", help="validation batch (default: as --batch)")
    parser.add_argument("--input", type=_input_size, metavar="H,W,C", help="input size (default: the model's)")
    parser.add_argument("--precision", metavar="P", help="fp32 (default), tf32, amp-fp16, amp-bf16, fp64")
    parser.add_argument("--target", metavar="T", help="cpu (default)")
    parser.add_argument(
        "--label-smoothing",
        type=_number,
        metavar="X",
        help=f"of the loss, from 0 to below 1 (default {_SMOOTHING:g}; eval: as the checkpoint)",
    )


def _add_learning(parser: argparse.ArgumentParser) -> None:
    pairs = "settings follow as :key=value,key=value"
    parser.add_argument("--seed", type=_seed, metavar="N", help="of all randomness (default 0)")
    parser.add_argument(
        "--optimizer", metavar="O", help=f"{', '.join(choices.OPTIMIZERS)} (default {_OPTIMIZER}); {pairs}"
    )
    parser.add_argument(
        "--weight-decay", type=_number, metavar="X", help=f"default {_WEIGHT_DECAY:g} with {_OPTIMIZER}"
    )
    rates = ", ".join(f"{v:g} for {k}" for k, v in choices.BASE_RATES.items())
    parser.add_argument("--lr", "--base-lr", dest="base_lr", type=_number, metavar="X", help=f"base rate ({rates})")
    parser.add_argument(
        "--schedule", metavar="S", help=f"{', '.join(choices.SCHEDULES)} (default {_SCHEDULE}); {pairs}"
    )
    parser.add_argument(
        "--warmup", type=_number, metavar="EPOCHS", help="rise to the base rate for so long (default 1 of 3 or more)"
    )


def _parser() -> Parser:
    parser = Parser(prog=PROG, description="Train, evaluate and time a BluePrint or a bundle.")
    actions = parser.add_subparsers(dest="action", required=True, metavar="{train,eval,bench}")
    train = actions.add_parser("train", help="train and validate")
    evaluate = actions.add_parser("eval", help="validate")
    bench = actions.add_parser("bench", help="time training steps")
    for action in (train, evaluate, bench):
        _add_model(action)
    for action in (train, bench):
        _add_learning(action)
    cli.add_train_options(train)
    evaluate.add_argument("--checkpoint", type=Path, metavar="FILE", help="take the parameters from this file")
    for action in (train, evaluate):
        cli.add_data_options(action)
    bench.add_argument("--steps", type=cli.positive, default=50, metavar="N", help="steps to time (default 50)")
    cli.add_output_options(bench)
    return parser


def _learning(args: argparse.Namespace, epochs: int) -> CompileOptions:
    """Optimizer and schedule of the options; ChoiceError for what does not fit."""
    text: str = args.optimizer or _OPTIMIZER
    name = text.partition(":")[0].strip()
    decay: dict[str, Any] = {}
    if args.weight_decay is not None:
        decay["weight_decay"] = args.weight_decay
    elif args.optimizer is None:
        decay["weight_decay"] = _WEIGHT_DECAY
    optimizer = choices.optimizer(text, **decay)
    base: float = choices.BASE_RATES[name] if args.base_lr is None else args.base_lr
    text = args.schedule or _SCHEDULE
    given: dict[str, Any] = {"base_lr": base} if args.base_lr is not None else {}
    if args.warmup is not None:
        given["warmup"] = args.warmup
    elif "warmup" not in text:
        given["warmup"] = 1 if epochs >= 3 else 0
    return {"optimizer": optimizer, "schedule": choices.schedule(text, base, **given)}


def _loss(args: argparse.Namespace) -> CrossEntropy:
    """The loss; an evaluation takes the smoothing that its checkpoint was trained with."""
    smoothing: float | None = args.label_smoothing
    if smoothing is None and args.action == "eval":
        smoothing = label_smoothing(args.checkpoint)
    try:
        return CrossEntropy(_SMOOTHING if smoothing is None else smoothing)
    except ValueError as err:
        raise ChoiceError(str(err)) from None


def _is_bundle(args: argparse.Namespace) -> bool:
    """Whether the model is a folder; then no option may say how to compile it."""
    if not args.model.is_dir():
        return False
    for name in _COMPILING:
        if getattr(args, name, None) is not None:
            option = "--lr" if name == "base_lr" else f"--{name.replace('_', '-')}"
            raise UsageError(f"{args.model} is compiled already: {option} cannot change it")
    return True


def _options(args: argparse.Namespace, data: Dataset | None, *, learning: bool) -> CompileOptions:
    """What to compile the model for. Without data the sample counts are those of synthetic data."""
    options: CompileOptions = {
        "batch": args.batch or _BATCH,
        "val_batch": args.val_batch,
        "precision": args.precision or "fp32",
        "target": args.target or "cpu",
        "val_samples": len(data.val) if data else VAL_SAMPLES,
        "input": args.input,
        # An evaluation needs no moments: the smallest optimizer.
        "optimizer": SGD(),
        "loss": _loss(args),
    }
    if args.input is None and data is not None and load_blueprint(args.model).input is None:
        options["input"] = data.train.shape
    if learning:
        epochs: int = getattr(args, "epochs", None) or _EPOCHS
        options |= _learning(args, epochs)
        options["seed"] = args.seed or 0
        options["epochs"] = epochs
        options["train_samples"] = len(data.train) if data else TRAIN_SAMPLES
    return options


def _prepare(args: argparse.Namespace, *, learning: bool) -> tuple[Executable, Dataset]:
    """The compiled model and its data; synthetic data has the shape and classes of the model."""
    bundle = _is_bundle(args)
    if not bundle and not args.model.exists():
        raise UsageError(f"{args.model}: no such file or folder")
    known = None if args.data == "synthetic" else cli.load_data(args)
    exe = load(args.model) if bundle else compile(args.model, **_options(args, known, learning=learning))
    if known is None:
        config = exe.plan.config
        known = synthetic(
            config.input,
            config.num_classes,
            config.train_samples or TRAIN_SAMPLES,
            config.val_samples or VAL_SAMPLES,
        )
    return exe, known


def _train(args: argparse.Namespace) -> None:
    exe, data = _prepare(args, learning=True)
    cli.train(exe, data, args)


def _eval(args: argparse.Namespace) -> None:
    if args.checkpoint is None and not args.model.is_dir():
        raise UsageError(f"{args.model} holds no parameters: give --checkpoint FILE")
    exe, data = _prepare(args, learning=False)
    cli.evaluate(exe, data, args)


def _bench(args: argparse.Namespace) -> None:
    bundle = _is_bundle(args)
    exe = load(args.model) if bundle else compile(args.model, **_options(args, None, learning=True))
    cli.bench(exe, args)


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns the exit code: 0, 1 after a user's mistake, 130 after Ctrl-C."""
    args = _parser().parse_args(argv)
    action = {"train": _train, "eval": _eval, "bench": _bench}[args.action]

    def work() -> None:
        cli.begin(args)
        action(args)

    return cli.guarded(PROG, work, (CompileError, ChoiceError))


if __name__ == "__main__":
    sys.exit(main())
