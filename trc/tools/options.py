"""The command-line options that trc-compile and trc-run share: which model, and what to compile it for.

Optimizers and schedules are written as in `trc_runtime.train.choices`: `adamw:weight_decay=1e-4`,
`cosine:base_lr=1e-3,warmup=1`.
"""

from __future__ import annotations

import argparse
from typing import Any

from trc.session.options import CompileOptions
from trc_runtime.schema.config import CrossEntropy
from trc_runtime.schema.dtypes import Precision
from trc_runtime.train import choices, cli
from trc_runtime.train.choices import ChoiceError

OPTIMIZER = "adamw"
WEIGHT_DECAY = 1e-4


def sizes(text: str, counts: tuple[int, ...], form: str) -> tuple[int, ...]:
    """Whole numbers of at least 1, between `x` or commas; ArgumentTypeError unless there are as many as allowed."""
    parts = text.replace(",", "x").split("x")
    if len(parts) not in counts:
        raise argparse.ArgumentTypeError(f"expected {form}, not '{text}'")
    return tuple(cli.positive(p) for p in parts)


def input_size(text: str) -> tuple[int, ...]:
    """`28x28x1`."""
    return sizes(text, (3,), "HEIGHTxWIDTHxCHANNELS")


def resolution(text: str) -> int | tuple[int, int]:
    """`224`, or `224x320`."""
    found = sizes(text, (1, 2), "a side or HEIGHTxWIDTH")
    return found[0] if len(found) == 1 else (found[0], found[1])


def resolutions(text: str) -> tuple[int | tuple[int, int], int | tuple[int, int]]:
    """`224`, or `128:224` for a beginning and an end."""
    begin, colon, end = text.partition(":")
    first = resolution(begin)
    return first, resolution(end) if colon else first


def number(text: str) -> float:
    """A real number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a number, not '{text}'") from None


def seed(text: str) -> int:
    """A whole number of 64 bits."""
    if not text.isdecimal() or int(text) >= 1 << 64:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 to 2**64 - 1, not '{text}'")
    return int(text)


def add_model_options(parser: argparse.ArgumentParser, batch: int) -> None:
    """Which shapes, precision and device; `batch` is named as the default."""
    group = parser.add_argument_group("what to compile for")
    group.add_argument("--batch", type=cli.positive, metavar="N", help=f"training batch (default {batch})")
    group.add_argument("--val-batch", type=cli.positive, metavar="N", help="validation batch (default: as --batch)")
    group.add_argument("--input", type=input_size, metavar="HxWxC", help="input size (default: the model's)")
    group.add_argument("--num-classes", type=cli.positive, metavar="N", help="default: the model's output channels")
    group.add_argument("--train-resolution", type=resolutions, metavar="BEGIN[:END]", help="default: the input's")
    group.add_argument("--val-resolution", type=resolution, metavar="N", help="default: the input's")
    group.add_argument("--precision", metavar="P", help=f"{', '.join(p.value for p in Precision)} (default fp32)")
    group.add_argument("--target", metavar="T", help="cpu (default) or cuda")
    group.add_argument("--planner", metavar="MODE", help="packed (default) or regions")
    group.add_argument("--fuse", action=argparse.BooleanOptionalAction, help="merge layers (default: yes)")
    group.add_argument("--choices", metavar="FILE", help="measured kernel choices, as JSON")


def add_learning_options(parser: argparse.ArgumentParser, schedule: str, smoothing: float) -> None:
    """How to train; the arguments are named as defaults."""
    group = parser.add_argument_group("how to train")
    pairs = "settings follow as :key=value,key=value"
    group.add_argument(
        "--optimizer", metavar="O", help=f"{', '.join(choices.OPTIMIZERS)} (default {OPTIMIZER}); {pairs}"
    )
    group.add_argument("--weight-decay", type=number, metavar="X", help=f"default {WEIGHT_DECAY:g} with {OPTIMIZER}")
    rates = ", ".join(f"{v:g} for {k}" for k, v in choices.BASE_RATES.items())
    group.add_argument("--lr", "--base-lr", dest="base_lr", type=number, metavar="X", help=f"base rate ({rates})")
    group.add_argument("--schedule", metavar="S", help=f"{', '.join(choices.SCHEDULES)} (default {schedule}); {pairs}")
    group.add_argument("--warmup", type=number, metavar="EPOCHS", help="rise to the base rate for so long")
    add_loss_option(group, f"default {smoothing:g}")
    average = "keep a moving average of the weights with this decay, say 0.999 or 0.999:warmup=true (default: none)"
    group.add_argument("--ema", metavar="DECAY", help=average)
    group.add_argument("--seed", type=seed, metavar="N", help="of all randomness (default 0)")


def add_loss_option(parser: argparse._ActionsContainer, default: str) -> None:  # pyright: ignore[reportPrivateUsage]
    """The loss's only setting."""
    parser.add_argument("--label-smoothing", type=number, metavar="X", help=f"from 0 to below 1 ({default})")


MODEL_OPTIONS = (
    "batch",
    "val_batch",
    "input",
    "num_classes",
    "train_resolution",
    "val_resolution",
    "precision",
    "target",
    "planner",
    "fuse",
    "choices",
)
"""What `add_model_options` adds; names of `trc.compile`'s keyword arguments."""

LEARNING_OPTIONS = ("optimizer", "weight_decay", "base_lr", "schedule", "warmup", "label_smoothing", "seed", "ema")
"""What `add_learning_options` adds."""


def model_options(args: argparse.Namespace) -> CompileOptions:
    """The model's options that were given, as keyword arguments of `trc.compile`."""
    given: Any = {n: v for n in MODEL_OPTIONS if (v := getattr(args, n)) is not None}
    return given


def learning_options(args: argparse.Namespace, schedule: str, warmup: float) -> CompileOptions:
    """Optimizer, schedule, seed and moving average; ChoiceError for what does not fit.

    The arguments hold where nothing is said.
    """
    text: str = args.optimizer or OPTIMIZER
    name = text.partition(":")[0].strip()
    decay: dict[str, Any] = {}
    if args.weight_decay is not None:
        decay["weight_decay"] = args.weight_decay
    elif args.optimizer is None:
        decay["weight_decay"] = WEIGHT_DECAY
    optimizer = choices.optimizer(text, **decay)
    base: float = choices.BASE_RATES[name] if args.base_lr is None else args.base_lr
    text = args.schedule or schedule
    given: dict[str, Any] = {"base_lr": base} if args.base_lr is not None else {}
    if args.warmup is not None:
        given["warmup"] = args.warmup
    elif "warmup" not in text:
        given["warmup"] = warmup
    return {
        "optimizer": optimizer,
        "schedule": choices.schedule(text, base, **given),
        "seed": args.seed or 0,
        "ema": None if args.ema is None else choices.ema(args.ema),
    }


def loss_of(smoothing: float) -> CrossEntropy:
    """The loss; ChoiceError for a smoothing out of range."""
    try:
        return CrossEntropy(smoothing)
    except ValueError as err:
        raise ChoiceError(str(err)) from None
