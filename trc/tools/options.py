"""The command-line options that trc-compile and trc-run share, and what they mean.

An optimizer, a schedule or a loss is written `name` or `name:key=value,key=value`, with tuples as `0.9/0.999`:
`--optimizer adamw:weight_decay=1e-4`, `--schedule cosine:base_lr=1e-3,warmup=1`.
"""

from __future__ import annotations

import argparse
import dataclasses
import typing
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path

from trc_runtime.schema.config import (
    SGD,
    WSD,
    Adam,
    AdamW,
    Constant,
    CosineAnnealing,
    CosineWarmRestarts,
    CrossEntropy,
    Exponential,
    MultiStep,
    Optimizer,
    Polynomial,
    Schedule,
    StepDecay,
)
from trc_runtime.schema.dtypes import Precision

if typing.TYPE_CHECKING:
    from trc.session.options import CompileOptions

OPTIMIZERS: Mapping[str, type[Optimizer]] = {"sgd": SGD, "adam": Adam, "adamw": AdamW}
SCHEDULES: Mapping[str, type[Schedule]] = {
    "constant": Constant,
    "cosine": CosineAnnealing,
    "polynomial": Polynomial,
    "step": StepDecay,
    "multistep": MultiStep,
    "exponential": Exponential,
    "wsd": WSD,
    "cosine-restarts": CosineWarmRestarts,
}
LOSSES: Mapping[str, type[CrossEntropy]] = {"cross-entropy": CrossEntropy}

T = typing.TypeVar("T")


class ToolParser(argparse.ArgumentParser):
    """A parser that answers a mistake with one line and exit code 1, and accepts no abbreviations."""

    def __init__(self, prog: str, description: str | None) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False)

    def error(self, message: str) -> typing.NoReturn:
        """Print `error: ...` and stop."""
        self.exit(1, f"error: {message} (see {self.prog} --help)\n")


def _hint(word: str, choices: typing.Iterable[str]) -> str:
    close = get_close_matches(word, list(choices), n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; choose one of {', '.join(choices)}"


def parse_spec(what: str, text: str, choices: Mapping[str, type[T]]) -> T:
    """Read `name:key=value,...` into one of the frozen classes; ArgumentTypeError says what does not fit."""
    name, _, rest = text.partition(":")
    kind = choices.get(name)
    if kind is None:
        raise argparse.ArgumentTypeError(f"unknown {what} '{name}'{_hint(name, choices)}")
    hints = typing.get_type_hints(kind)
    fields = [f.name for f in dataclasses.fields(typing.cast(typing.Any, kind))]
    values: dict[str, object] = {}
    for item in filter(None, rest.split(",")):
        key, equals, value = (part.strip() for part in item.partition("="))
        key = key.replace("-", "_")
        if not equals:
            raise argparse.ArgumentTypeError(f"{what} {name}: '{item}' is not key=value")
        if key not in fields:
            raise argparse.ArgumentTypeError(f"{what} {name} has no '{key}'{_hint(key, fields)}")
        if key in values:
            raise argparse.ArgumentTypeError(f"{what} {name}: '{key}' is given twice")
        values[key] = _parse_value(f"{what} {name}: {key}", value, hints[key])
    try:
        return typing.cast(Callable[..., T], kind)(**values)
    except ValueError as err:
        raise argparse.ArgumentTypeError(str(err)) from None


def _parse_value(where: str, text: str, kind: typing.Any) -> object:
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        return tuple(_parse_value(where, part, item) for part in text.split("/"))
    if kind is bool:
        if text not in ("true", "false"):
            raise argparse.ArgumentTypeError(f"{where} must be true or false, not '{text}'")
        return text == "true"
    try:
        return kind(text)
    except ValueError:
        wanted = "a whole number" if kind is int else "a number"
        raise argparse.ArgumentTypeError(f"{where} must be {wanted}, not '{text}'") from None


def _optimizer(text: str) -> Optimizer:
    return parse_spec("optimizer", text, OPTIMIZERS)


def _schedule(text: str) -> Schedule:
    return parse_spec("schedule", text, SCHEDULES)


def _loss(text: str) -> CrossEntropy:
    return parse_spec("loss", text, LOSSES)


def _sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.replace(",", "x").split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size such as 28x28x1") from None


def _resolution(text: str) -> int | tuple[int, int]:
    sizes = _sizes(text)
    if len(sizes) not in (1, 2):
        raise argparse.ArgumentTypeError(f"'{text}' is not a resolution such as 224 or 224x320")
    return sizes[0] if len(sizes) == 1 else (sizes[0], sizes[1])


def _resolutions(text: str) -> tuple[int | tuple[int, int], int | tuple[int, int]]:
    begin, arrow, end = text.partition(":")
    first = _resolution(begin)
    return first, _resolution(end) if arrow else first


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number of at least 1")
    return value


def add_compile_options(parser: argparse.ArgumentParser) -> None:
    """Add every option of `trc.compile`, with the same names."""
    group = parser.add_argument_group("what to compile for")
    group.add_argument("--input", type=_sizes, metavar="HxWxC", help="input size, where the blueprint has none")
    group.add_argument("--num-classes", type=_positive, metavar="N", help="default: the network's output channels")
    group.add_argument("--batch", type=_positive, metavar="N", help="default: 128")
    group.add_argument("--val-batch", type=_positive, metavar="N", help="default: as --batch")
    group.add_argument("--optimizer", type=_optimizer, metavar="SPEC", help=f"{', '.join(OPTIMIZERS)}[:key=value,...]")
    group.add_argument("--schedule", type=_schedule, metavar="SPEC", help=f"{', '.join(SCHEDULES)}[:key=value,...]")
    group.add_argument("--loss", type=_loss, metavar="SPEC", help="cross-entropy[:label_smoothing=0.1]")
    group.add_argument("--epochs", type=_positive, metavar="N")
    group.add_argument("--train-samples", type=_positive, metavar="N", help="default: unknown, full batches only")
    group.add_argument("--val-samples", type=_positive, metavar="N")
    group.add_argument("--train-resolution", type=_resolutions, metavar="BEGIN[:END]")
    group.add_argument("--val-resolution", type=_resolution, metavar="N")
    group.add_argument("--world-size", type=_positive, metavar="N")
    group.add_argument("--precision", metavar="P", help=", ".join(p.value for p in Precision))
    group.add_argument("--target", metavar="T", help="cpu or cuda")
    group.add_argument("--planner", metavar="MODE", help="packed (default) or regions")
    group.add_argument("--fuse", action=argparse.BooleanOptionalAction, help="merge layers (default: yes)")
    group.add_argument("--choices", metavar="FILE", help="measured kernel choices")
    group.add_argument("--seed", type=int, metavar="N")


def compile_options(args: argparse.Namespace) -> CompileOptions:
    """The options that were given, as keyword arguments of `trc.compile`."""
    names = (
        "input",
        "num_classes",
        "batch",
        "val_batch",
        "optimizer",
        "schedule",
        "loss",
        "epochs",
        "train_samples",
        "val_samples",
        "train_resolution",
        "val_resolution",
        "world_size",
        "precision",
        "target",
        "planner",
        "fuse",
        "choices",
        "seed",
    )
    given = {n: getattr(args, n) for n in names if getattr(args, n, None) is not None}
    return typing.cast("CompileOptions", given)


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """Add what every tool has."""
    parser.add_argument("--debug", action="store_true", help="show the traceback of an internal error")


def existing_file(text: str) -> Path:
    """A path that must exist."""
    path = Path(text)
    if not path.exists():
        raise argparse.ArgumentTypeError(f"{text}: no such file or folder")
    return path
