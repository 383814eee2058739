"""trc-compile: a BluePrint in, IR, reports or a bundle out."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.printer import Printer

from trc.codegen.cuda.bundle import generate
from trc.codegen.plan_lowering import lower_module
from trc.diagnostics import CompileError
from trc.interchange.arch_yaml import to_yaml
from trc.interchange.table import plan_table
from trc.session import cuda
from trc.session.compiling import Lowered, refuse_missing_kernels, refuse_ranks, run_phases
from trc.session.options import DEFAULTS, CompileOptions, choose_target, with_defaults
from trc.tools.options import add_learning_options, add_model_options, learning_options, loss_of, model_options
from trc_runtime.data.dataset import NORMALISATIONS
from trc_runtime.schema.bundle import CUDNN_PLANS, MODEL, PLAN, BundleError, write_bundle
from trc_runtime.schema.codec import Json, to_json
from trc_runtime.schema.files import write_atomically
from trc_runtime.schema.report import memory_report
from trc_runtime.train import choices, cli
from trc_runtime.train.choices import ChoiceError

DIALECTS: Mapping[str, tuple[str, ...]] = {
    "arch": ("arch.",),
    "memplan": ("memplan.",),
    "graph": ("graph.computation", "graph.variant", "graph.step"),
    "atlas": ("graph.atlas",),
}
"""What `--emit` prints of the module, by the beginnings of the operations' names."""

NEEDS: Mapping[str, str] = {
    "arch": "arch",
    "yaml": "arch",
    "memplan": "schedule",
    "graph": "schedule",
    "atlas": "atlas",
    "memory": "atlas",
    "table": "atlas",
    "kernels": "atlas",
    "driver": "atlas",
}
"""The phase after which each `--emit` is complete."""

CUDA_ONLY = ("kernels", "driver")
"""What `--emit` prints for target cuda only: kernels.cu and driver.py."""

PHASES = ("import", "arch", "kernels", "shapes", "plan", "graph", "schedule", "atlas", "bundle")


SCHEDULE = "constant"
"""The schedule where none is given: it needs no number of epochs."""

LENGTH_OPTIONS = ("epochs", "train_samples", "val_samples", "world_size")


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = cli.Parser(prog="trc-compile", description=__doc__)
    parser.add_argument("model", help="a .bp file")
    parser.add_argument("-o", "--output", metavar="PATH", help="the bundle's folder, or the file for --emit")
    parser.add_argument("--compile-to", metavar="PHASE", help=f"print the IR after a phase: {', '.join(PHASES)}")
    parser.add_argument("--dump-phases-to", metavar="DIR", help="write one numbered .mlir file a phase")
    parser.add_argument("--emit", metavar="WHAT", help=f"print one of {', '.join(NEEDS)}")
    parser.add_argument(
        "--device-properties",
        metavar="FILE",
        help="with --target cuda: put device code and cuDNN plans for the GPU with these properties into the bundle "
        "(`trc-run device FILE` writes them on the machine that has it)",
    )
    parser.add_argument("--json", action="store_true", help="with --emit memory or atlas: as JSON")
    parser.add_argument("--time-phases", action="store_true", help="print what each pass took, to standard error")
    add_model_options(parser, DEFAULTS.get("batch", 0))
    add_learning_options(parser, SCHEDULE, 0.0)
    parser.add_argument(
        "--normalise",
        metavar="N",
        help=f"images are bytes, which the device normalises as for {', '.join(NORMALISATIONS)}, or with "
        "mean=M/M/...,std=S/S/..., one a channel (default: the host normalises)",
    )
    group = parser.add_argument_group("how long it trains")
    group.add_argument("--epochs", type=cli.positive, metavar="N", help="default: unknown")
    group.add_argument("--train-samples", type=cli.positive, metavar="N", help="default: unknown, full batches only")
    group.add_argument("--val-samples", type=cli.positive, metavar="N", help="default: unknown, full batches only")
    group.add_argument("--world-size", type=cli.positive, metavar="N", help="ranks (default 1)")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an internal error")
    return parser


def write_text(path: Path, text: str) -> None:
    """Write a file as a whole; CompileError where it cannot be written."""
    try:
        write_atomically(path, text.encode())
    except OSError as err:
        raise CompileError(f"cannot write {path}: {err.strerror or err}") from None


def module_text(module: ModuleOp) -> str:
    """The module in its own format."""
    stream = StringIO()
    Printer(stream=stream).print_op(module)
    return stream.getvalue() + "\n"


def dialect_text(module: ModuleOp, starts: tuple[str, ...]) -> str:
    """Those operations of the module whose names begin as given, without the module around them."""
    lines: list[str] = []
    for op in module.ops:
        if op.name.startswith(starts):
            stream = StringIO()
            Printer(stream=stream).print_op(op)
            lines.append(stream.getvalue())
    return "\n".join(lines) + "\n"


def options_of(args: argparse.Namespace) -> CompileOptions:
    """The keyword arguments of `trc.compile`; ChoiceError for an optimizer or schedule that does not fit."""
    length: Any = {n: v for n in LENGTH_OPTIONS if (v := getattr(args, n)) is not None}
    options = model_options(args) | learning_options(args, SCHEDULE, 0.0)
    options["loss"] = loss_of(args.label_smoothing or 0.0)
    if args.normalise is not None:
        options["normalise"] = choices.normalise(args.normalise)
    return options | length


def check_arguments(args: argparse.Namespace) -> None:
    """Refuse combinations that mean nothing."""
    if args.emit is not None and args.emit not in NEEDS:
        raise CompileError(f"--emit {args.emit}: unknown; choose one of {', '.join(NEEDS)}")
    if args.compile_to is not None and args.compile_to not in PHASES:
        raise CompileError(f"--compile-to {args.compile_to}: unknown phase; choose one of {', '.join(PHASES)}")
    if args.json and args.emit not in ("memory", "atlas"):
        raise CompileError("--json goes with --emit memory or --emit atlas")
    if args.emit is not None and args.compile_to is not None:
        raise CompileError("--emit and --compile-to both choose what is printed: give one of them")
    if args.compile_to == "bundle" and args.output is None:
        raise CompileError("--compile-to bundle needs -o FOLDER")
    if args.emit is None and args.compile_to is None and args.output is None and args.dump_phases_to is None:
        raise CompileError("nothing to do: give -o FOLDER, --emit, --compile-to or --dump-phases-to")


def phase_dumper(folder: Path, name: str) -> Callable[[str, ModuleOp], None]:
    """Writes `<name>.<number>.<phase>.mlir` after each phase."""
    number = iter(range(1, len(PHASES) + 1))

    def dump(phase: str, module: ModuleOp) -> None:
        write_text(folder / f"{name}.{next(number)}.{phase}.mlir", module_text(module))

    return dump


def emitted(what: str, as_json: bool, lowered: Lowered) -> str:
    """The text of `--emit`."""
    if what == "yaml":
        return to_yaml(lowered.module)
    if what in CUDA_ONLY:
        code = generate(lower_module(lowered.module, lowered.config))
        return code.kernels if what == "kernels" else code.driver
    if what == "table":
        return plan_table(lowered.module, lower_module(lowered.module, lowered.config))
    if what == "memory" or as_json:
        plan = lower_module(lowered.module, lowered.config)
        if what == "memory":
            report = memory_report(plan)
            return json.dumps(report.to_json(), indent=2) + "\n" if as_json else f"{report}\n"
        atlas: dict[str, Json] = {"captures": to_json(plan.captures), "table": to_json(plan.atlas)}
        return json.dumps(atlas, indent=2) + "\n"
    return dialect_text(lowered.module, DIALECTS[what])


def write_target_bundle(path: str, lowered: Lowered, target: str, properties: str | None) -> str:
    """Lower to a plan and write the bundle for the target; what was written, or CompileError."""
    refuse_ranks(lowered.config)
    plan = lower_module(lowered.module, lowered.config)
    files = {PLAN: plan.to_json().encode(), MODEL: module_text(lowered.module).encode()}
    architecture: str | None = None
    if target == "cuda":
        built = cuda.build(plan, properties)
        files |= built.all
        architecture = built.architecture
    else:
        refuse_missing_kernels(plan)
    try:
        written = str(write_bundle(path, files, target, architecture))
    except BundleError as err:
        raise CompileError(str(err)) from None
    if architecture is None:
        return written
    return f"{written}: device code{' and cuDNN plans' if CUDNN_PLANS in files else ''} for {architecture}"


def run(args: argparse.Namespace) -> None:
    """Do what the command line says; raises CompileError."""
    check_arguments(args)
    options = options_of(args)
    wants_bundle = args.compile_to == "bundle" or (
        args.output is not None and args.emit is None and args.compile_to is None
    )
    target = choose_target(str(with_defaults(options).get("target")))
    if args.emit in CUDA_ONLY and target != "cuda":
        raise CompileError(f"--emit {args.emit} goes with --target cuda")
    if args.device_properties is not None and not (wants_bundle and target == "cuda"):
        raise CompileError("--device-properties goes with --target cuda and a bundle (-o FOLDER)")
    if wants_bundle or (args.emit is None and args.compile_to is None):
        to = "atlas"
    else:
        to = NEEDS[args.emit] if args.emit else str(args.compile_to)
    after = phase_dumper(Path(args.dump_phases_to), Path(args.model).stem) if args.dump_phases_to is not None else None
    lowered = run_phases(args.model, options, to, after)
    if args.time_phases:
        for name, seconds in lowered.seconds:
            print(f"{1e3 * seconds:9.3f} ms  {name}", file=sys.stderr)
    if wants_bundle:
        print(f"wrote {write_target_bundle(str(args.output), lowered, target, args.device_properties)}")
        return
    if args.emit is None and args.compile_to is None:
        return
    text = emitted(args.emit, args.json, lowered) if args.emit else module_text(lowered.module)
    if args.output is not None:
        write_text(Path(args.output), text)
    else:
        sys.stdout.write(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; 0, or 1 after a message."""
    args = make_parser().parse_args(argv)
    return cli.guarded("trc-compile", lambda: run(args), (CompileError, ChoiceError), debug=args.debug)


if __name__ == "__main__":
    sys.exit(main())
