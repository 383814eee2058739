"""trc-run: train, evaluate and time a BluePrint or a bundle; write down what a GPU is."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from trc.blueprint import load_blueprint
from trc.diagnostics import CompileError
from trc.session import CompileOptions, Executable, compile, load
from trc.session.compiling import run_phases
from trc.session.cuda import write_properties
from trc.tools.options import (
    LEARNING_OPTIONS,
    MODEL_OPTIONS,
    add_learning_options,
    add_loss_option,
    add_model_options,
    learning_options,
    loss_of,
    model_options,
)
from trc_runtime.cuda.errors import CudaError
from trc_runtime.data.dataset import Dataset
from trc_runtime.data.synthetic import TRAIN_SAMPLES, VAL_SAMPLES
from trc_runtime.schema.config import SGD, CrossEntropy
from trc_runtime.train import cli
from trc_runtime.train.checkpoint import label_smoothing
from trc_runtime.train.choices import ChoiceError
from trc_runtime.train.cli import Parser, UsageError

PROG = "trc-run"

# The defaults are the recipe of the articles' MNIST example, with a rate and a warm-up for few epochs.
_EPOCHS = 5
_BATCH = 200
_SCHEDULE = "cosine"
_SMOOTHING = 0.1


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", type=Path, help="a .bp file, or the folder of a bundle")
    add_model_options(parser, _BATCH)
    parser.add_argument(
        "--autotune", metavar="FILE", help="with --target cuda: cuDNN engines measured on this GPU, measured if missing"
    )


def _parser() -> Parser:
    parser = Parser(prog=PROG, description="Train, evaluate and time a BluePrint or a bundle.")
    actions = parser.add_subparsers(dest="action", required=True, metavar="{train,eval,bench,device}")
    train = actions.add_parser("train", help="train and validate")
    evaluate = actions.add_parser("eval", help="validate")
    bench = actions.add_parser("bench", help="time training steps")
    device = actions.add_parser("device", help="write this GPU's properties, for trc-compile --device-properties")
    device.add_argument("file", type=Path, metavar="FILE", help="the file to write")
    device.set_defaults(quiet=False, verbose=0)
    for action in (train, evaluate, bench):
        _add_model(action)
    for action in (train, bench):
        add_learning_options(action, _SCHEDULE, _SMOOTHING)
    add_loss_option(evaluate, "default: as the checkpoint")
    cli.add_train_options(train)
    cli.add_eval_options(evaluate)
    for action in (train, evaluate):
        cli.add_data_options(action)
    cli.add_bench_options(bench)
    return parser


def _loss(args: argparse.Namespace) -> CrossEntropy:
    """The loss; an evaluation takes the smoothing that its checkpoint was trained with."""
    smoothing: float | None = args.label_smoothing
    if smoothing is None and args.action == "eval":
        smoothing = label_smoothing(args.checkpoint)
    return loss_of(_SMOOTHING if smoothing is None else smoothing)


def _is_bundle(args: argparse.Namespace) -> bool:
    """Whether the model is a folder; then no option may say how to compile it."""
    if not args.model.is_dir():
        return False
    for name in (*MODEL_OPTIONS, *LEARNING_OPTIONS, "autotune"):
        if getattr(args, name, None) is not None:
            option = "--lr" if name == "base_lr" else f"--{name.replace('_', '-')}"
            raise UsageError(f"{args.model} is compiled already: {option} cannot change it")
    return True


def _options(args: argparse.Namespace, data: Dataset | None, *, learning: bool) -> CompileOptions:
    """What to compile the model for. Without data the sample counts are those of synthetic data."""
    options: CompileOptions = {
        "batch": _BATCH,
        "val_samples": len(data.val) if data else VAL_SAMPLES,
        # An evaluation needs no moments: the smallest optimizer.
        "optimizer": SGD(),
        "loss": _loss(args),
        **model_options(args),
    }
    if args.autotune is not None:
        options["autotune"] = args.autotune
    if args.input is None and data is not None and load_blueprint(args.model).input is None:
        options["input"] = data.train.shape
    if learning:
        epochs: int = getattr(args, "epochs", None) or _EPOCHS
        options |= learning_options(args, _SCHEDULE, 1 if epochs >= 3 else 0)
        options["epochs"] = epochs
        options["train_samples"] = len(data.train) if data else TRAIN_SAMPLES
    return options


def _compiled(args: argparse.Namespace, options: CompileOptions, data: Dataset) -> Executable:
    """The model, compiled to normalise the data's bytes on the device."""
    split, size = data.train, options.get("input") or load_blueprint(args.model).input
    # Data with other channels than the network's input cannot be fed: the runner says that, in terms of the data.
    if split.images.dtype == np.uint8 and size is not None and size[2] == split.shape[2]:
        options = {**options, "normalise": split.normalisation}
    return compile(args.model, **options)


def _prepare(args: argparse.Namespace, *, learning: bool) -> tuple[Executable, Dataset]:
    """The compiled model and its data; synthetic data has the shape and classes of the model."""
    bundle = _is_bundle(args)
    if not bundle and not args.model.exists():
        raise UsageError(f"{args.model}: no such file or folder")
    cli.check_data_options(args)
    if bundle:
        exe = load(args.model)
        return exe, cli.data_for(exe.plan.config, args)
    data = None if args.data == "synthetic" else cli.load_data(args)
    options = _options(args, data, learning=learning)
    if data is None:
        data = cli.synthetic_for(run_phases(args.model, options, "import").config)
    return _compiled(args, options, data), data


def _train(args: argparse.Namespace) -> None:
    exe, data = _prepare(args, learning=True)
    cli.train(exe, data, args)


def _eval(args: argparse.Namespace) -> None:
    if args.checkpoint is None and not args.model.is_dir():
        raise UsageError(f"{args.model} holds no parameters: give --checkpoint FILE")
    exe, data = _prepare(args, learning=False)
    cli.evaluate(exe, data, args)


def _bench(args: argparse.Namespace) -> None:
    if _is_bundle(args):
        exe = load(args.model)
    else:
        options = _options(args, None, learning=True)
        exe = _compiled(args, options, cli.bench_data(run_phases(args.model, options, "import").config))
    cli.bench(exe, args)


def _device(args: argparse.Namespace) -> None:
    print(f"wrote {args.file}: {write_properties(args.file)}")


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns the exit code: 0, 1 after a user's mistake, 130 after Ctrl-C."""
    args = _parser().parse_args(argv)
    action = {"train": _train, "eval": _eval, "bench": _bench, "device": _device}[args.action]

    def work() -> None:
        cli.begin(args)
        action(args)

    return cli.guarded(PROG, work, (CompileError, ChoiceError, CudaError))


if __name__ == "__main__":
    sys.exit(main())
