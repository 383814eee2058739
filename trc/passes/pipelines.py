"""Named pipelines, and the passes that complete each phase of a compilation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from xdsl.passes import ModulePass

from trc.diagnostics import CompileError
from trc.passes.plan.network import CHANNEL_MULTIPLE
from trc.passes.plan.settings import ema_options, optimizer_options
from trc.passes.registry import load_pass
from trc_runtime.schema.config import RunConfig

Option = bool | int | float | str | tuple[float, ...]
"""The value of a pass option."""

Step = tuple[str, dict[str, Option]]
"""A pass by name, with its options."""

PHASES: dict[str, tuple[str, ...]] = {
    "import": (),
    "arch": (
        "arch-expand-tree",
        "arch-rename-bn",
        "arch-normalize-softmax-ce",
        "arch-normalize-identity",
        "arch-align-amp-channels",
        "arch-deduce-shapes",
        "arch-normalize-flatten",
        "arch-merge-blocks",
        "arch-merge-quadruple",
        "arch-merge-triple",
        "arch-merge-binary-and-mark",
    ),
    "kernels": ("plan-create-compile-specs", "plan-select-kernels"),
    "shapes": ("plan-derive-all-shapes",),
    "plan": ("plan-compute-max-slot-bytes", "plan-create-memory-plans"),
    "graph": ("graph-build-computation", "graph-share-or-clone"),
    "schedule": ("graph-schedule-steps", "plan-pack-transients"),
    "atlas": ("graph-build-atlas",),
}
"""The phases in order; a phase is complete when its passes have run."""

_MERGES = ("arch-merge-blocks", "arch-merge-quadruple", "arch-merge-triple")

_PLAN_DEFAULTS: dict[str, Option] = {
    "batch": 200,
    "val-batch": 0,
    "height": 0,
    "width": 0,
    "end-height": 0,
    "end-width": 0,
    "val-height": 0,
    "val-width": 0,
    "channels": 0,
    "train-samples": 0,
    "val-samples": 0,
    "world-size": 1,
    "precision": "fp32",
    "target": "cpu",
    "choices": "",
    "optimizer": "adamw",
    "momentum": 0.0,
    "nesterov": False,
    "beta1": 0.9,
    "beta2": 0.999,
    "eps": 1e-8,
    "weight-decay": 0.0,
    "decoupled": False,
    "rates": 1,
    "mean": (),
    "std": (),
    "ema-decay": 0.0,
    "ema-warmup": False,
    "mode": "packed",
}
"""The options of the pipeline `plan`."""

_PLAN_OPTIONS: dict[str, tuple[str, ...]] = {
    "plan-create-compile-specs": (
        "batch",
        "val-batch",
        "height",
        "width",
        "end-height",
        "end-width",
        "val-height",
        "val-width",
        "channels",
        "train-samples",
        "val-samples",
        "world-size",
        "precision",
    ),
    "plan-select-kernels": ("target", "choices"),
    "plan-derive-all-shapes": (
        "optimizer",
        "momentum",
        "nesterov",
        "beta1",
        "beta2",
        "eps",
        "weight-decay",
        "decoupled",
        "rates",
        "mean",
        "std",
        "ema-decay",
    ),
    "plan-compute-max-slot-bytes": (),
    "plan-create-memory-plans": ("mode",),
    "graph-build-computation": (
        "optimizer",
        "momentum",
        "nesterov",
        "weight-decay",
        "decoupled",
        "world-size",
        "ema-decay",
        "ema-warmup",
    ),
    "graph-share-or-clone": (),
    "graph-schedule-steps": (),
    "plan-pack-transients": (),
    "graph-build-atlas": (),
}
"""Which of them each pass takes, in the order of the passes."""


def arch_plan(options: Mapping[str, str]) -> list[Step]:
    """`arch-plan{amp= fuse= num-classes= label-smoothing=}`: a BluePrint's model to a normalised network.

    CompileError for an unknown option or a value of another type.
    """
    given = _typed("arch-plan", options, {"amp": False, "fuse": True, "num-classes": 10, "label-smoothing": 0.0})
    num_classes, smoothing = cast(int, given["num-classes"]), cast(float, given["label-smoothing"])
    return _arch_steps(bool(given["amp"]), bool(given["fuse"]), num_classes, smoothing)


def plan(options: Mapping[str, str]) -> list[Step]:
    """`plan{...}`: a normalised network to the atlas; the options are those of its passes.

    CompileError for an unknown option or a value of another type.
    """
    return _plan_steps(_typed("plan", options, _PLAN_DEFAULTS))


NAMED_PIPELINES: dict[str, Callable[[Mapping[str, str]], list[Step]]] = {"arch-plan": arch_plan, "plan": plan}
"""Pipelines that stand for passes; options come and go by their names on the command line."""


def build_pipeline(
    config: RunConfig,
    *,
    fuse: bool = True,
    planner: str = "packed",
    target: str = "cpu",
    choices: str | None = None,
) -> list[ModulePass]:
    """All passes from an imported BluePrint to the atlas, for what a network is compiled for."""
    smoothing = config.loss.label_smoothing
    steps = _arch_steps(config.precision.is_amp, fuse, config.num_classes, smoothing)
    begin, end = config.train_resolution
    options: dict[str, Option] = {
        **_PLAN_DEFAULTS,
        "batch": config.batch,
        "val-batch": config.val_batch,
        "height": begin[0],
        "width": begin[1],
        "end-height": end[0],
        "end-width": end[1],
        "val-height": config.val_resolution[0],
        "val-width": config.val_resolution[1],
        # Under mixed precision the model's input may have got more channels than the images have.
        "channels": config.input[2] if config.precision.is_amp and config.input[2] % CHANNEL_MULTIPLE else 0,
        "train-samples": config.train_samples or 0,
        "val-samples": config.val_samples or 0,
        "world-size": config.world_size,
        "precision": config.precision.value,
        "target": target,
        "choices": choices or "",
        "rates": rate_table_length(config),
        "mean": config.normalise.mean if config.normalise else (),
        "std": config.normalise.std if config.normalise else (),
        "mode": planner,
        **{
            name.replace("_", "-"): value
            for name, value in (optimizer_options(config.optimizer) | ema_options(config.ema)).items()
        },
    }
    steps += _plan_steps(options)
    return [make_pass(name, chosen) for name, chosen in steps]


def rate_table_length(config: RunConfig) -> int:
    """How many learning rates the run needs: one a step, or one in all where its length is unknown."""
    if config.epochs is None or config.train_samples is None:
        return 1
    return max(1, config.epochs * -(-config.train_samples // (config.batch * config.world_size)))


def make_pass(name: str, options: Mapping[str, Option]) -> ModulePass:
    """The pass of that name; its options are given by their names on the command line."""
    return load_pass(name)(**{option.replace("-", "_"): value for option, value in options.items()})


def _arch_steps(amp: bool, fuse: bool, num_classes: int, smoothing: float) -> list[Step]:
    """The ten steps; without `fuse` nothing is merged, without mixed precision no channels are aligned."""
    options: dict[str, dict[str, Option]] = {
        "arch-expand-tree": {"fuse": fuse},
        "arch-normalize-softmax-ce": {"num-classes": num_classes, "label-smoothing": smoothing},
        "arch-merge-binary-and-mark": {"fuse": fuse},
    }
    left_out = (*(() if fuse else _MERGES), *(() if amp else ("arch-align-amp-channels",)))
    return [(name, options.get(name, {})) for name in PHASES["arch"] if name not in left_out]


def _plan_steps(options: Mapping[str, Option]) -> list[Step]:
    """The plan passes with their share of the options, defaults left out."""
    steps: list[Step] = []
    for name, takes in _PLAN_OPTIONS.items():
        if name == "plan-pack-transients" and options["mode"] != "packed":
            continue
        steps.append((name, {o: options[o] for o in takes if options[o] != _PLAN_DEFAULTS[o]}))
    return steps


def _typed(pipeline: str, given: Mapping[str, str], defaults: Mapping[str, Option]) -> dict[str, Option]:
    """Options from text, typed as their defaults."""
    result = dict(defaults)
    for name, text in given.items():
        key = name.replace("_", "-")
        if key not in defaults:
            raise CompileError(f"{pipeline} has no option '{name}'; it has {', '.join(defaults)}")
        result[key] = _value(f"{pipeline}: option {key}", text, defaults[key])
    return result


def _value(what: str, text: str, default: Option) -> Option:
    if isinstance(default, bool):
        if text not in ("true", "false"):
            raise CompileError(f"{what} must be true or false, not '{text}'")
        return text == "true"
    if isinstance(default, tuple):
        try:
            return tuple(float(number) for number in text.split(","))
        except ValueError:
            raise CompileError(f"{what} must be numbers between commas, not '{text}'") from None
    kind = type(default)
    try:
        value = kind(text)
    except ValueError:
        wanted = "a whole number" if kind is int else "a number"
        raise CompileError(f"{what} must be {wanted}, not '{text}'") from None
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise CompileError(f"{what}: {value} does not fit into 64 bits")
    return value
