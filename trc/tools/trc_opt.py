"""trc-opt: reads IR or a BluePrint, runs passes, prints IR."""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shlex
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

from trc.diagnostics import CompileError, Diagnostic

if TYPE_CHECKING:
    from xdsl.context import Context
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.passes import ModulePass

T = TypeVar("T")

SEPARATOR = "// -----"
"""A line of this text separates the parts of a file under --split-input-file."""

_SPLIT = re.compile(rf"^{SEPARATOR}[^\S\n]*$", re.MULTILINE)
FORMATS = ("mlir", "bp")


class Failure(Exception):
    """Stops one part of the input; the problems have been found, not yet shown."""

    def __init__(self, problems: Sequence[Diagnostic], note: str | None = None) -> None:
        super().__init__(note)
        self.problems = list(problems)
        self.note = note


class _ArgumentParser(argparse.ArgumentParser):
    """Mistakes end with one line and exit code 1."""

    def error(self, message: str) -> NoReturn:
        """Print `error: ...` and stop."""
        self.exit(1, f"error: {message} (see {self.prog} --help)\n")


class _Version(argparse.Action):
    """Prints the versions; they are looked up only when asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        """Print and stop."""
        print(versions())
        parser.exit(0)


def versions() -> str:
    """The versions of trc and xDSL."""
    from importlib.metadata import PackageNotFoundError, version

    def of(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "(not installed)"

    return f"trc {of('trc')}, xDSL {of('xdsl')}"


def argument_parser() -> argparse.ArgumentParser:
    """The options; their help fits on one page."""
    parser = _ArgumentParser(
        prog="trc-opt",
        description="Reads IR (.mlir) or a BluePrint (.bp), runs passes, prints IR.",
        epilog="A pipeline: 'arch-plan{fuse=true num-classes=10},plan{batch=200}'; see --list-passes.",
        allow_abbrev=False,
        usage="trc-opt [FILE] [options]",
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=30, width=100),
    )
    add = parser.add_argument
    add("file", nargs="?", default="-", metavar="FILE", help="input file, - for standard input (default)")
    add("-o", "--output", metavar="FILE", help="write here instead of to standard output")
    add("-p", "--passes", "--pass-pipeline", metavar="PIPELINE", help="the passes to run, comma-separated")
    add("--input-format", choices=FORMATS, help="what the input is, where the file's ending does not say")
    add("--split-input-file", action="store_true", help=f"treat the parts between '{SEPARATOR}' lines as files")
    add("--verify-diagnostics", action="store_true", help="check errors against // expected-error {{...}}")
    add("--no-verify-each", action="store_true", help="verify the input and the output only, not each pass")
    add("--print-after-all", action="store_true", help="print the IR after each pass to standard error")
    add("--print-after", action="append", default=[], metavar="PASS", help="print the IR after this pass")
    add("--print-op-generic", action="store_true", help="print the generic form")
    add("--print-debuginfo", action="store_true", help="print the place of each operation")
    add("--time-passes", action="store_true", help="print the time of each pass to standard error")
    add("--list-passes", action="store_true", help="list passes and named pipelines with their options")
    add("--reproducer-dir", metavar="DIR", help="where a failing pass leaves its reproducer (temporary folder)")
    add("--no-reproducer", action="store_true", help="leave no reproducer")
    add("--debug", action="store_true", help="show the traceback of an internal error")
    add("--version", action=_Version, nargs=0, help="print the versions")
    return parser


@dataclass
class Driver:
    """One call of the tool."""

    options: argparse.Namespace
    passes: tuple[ModulePass, ...]
    context: Context
    times: dict[str, float] = field(default_factory=dict[str, float])

    def read(self, text: str, filename: str) -> ModuleOp:
        """The module of a text; CompileError for what is wrong with it."""
        if self.options.input_format == "bp" or (self.options.input_format is None and filename.endswith(".bp")):
            from trc.blueprint import import_blueprint, parse_blueprint

            return import_blueprint(parse_blueprint(text, filename))
        from trc.dialects.parsing import parse_module

        return parse_module(text, filename, self.context)

    def timed(self, name: str, work: Callable[[], T]) -> T:
        """Do something and add its time to the table."""
        start = time.perf_counter()
        try:
            return work()
        finally:
            self.times[name] = self.times.get(name, 0.0) + time.perf_counter() - start

    def text(self, module: ModuleOp) -> str:
        """The text of a module."""
        return ir_text(module, self.options.print_op_generic, self.options.print_debuginfo)

    def process(self, text: str, filename: str) -> str:
        """One part of the input from text to text; Failure if that does not work."""
        try:
            module = self.timed("(read)", lambda: self.read(text, filename))
            self.timed("(verify)", lambda: verify(module))
        except CompileError as err:
            raise Failure(_with_source(err, text)) from None
        except Exception as err:
            raise self._internal("reading the input", err) from err
        for n, step in enumerate(self.passes):
            self._run(n, module, text, filename)
            if self.options.print_after_all or step.name in self.options.print_after:
                print(f"// -----// IR after {step} //----- //\n{self.text(module)}", end="", file=sys.stderr)
        try:
            return self.timed("(print)", lambda: self.text(module))
        except Exception as err:
            raise self._internal("printing the IR", err) from err

    def _run(self, n: int, module: ModuleOp, text: str, filename: str) -> None:
        """Run pass `n`, then verify."""
        step = self.passes[n]
        try:
            self.timed(step.name, lambda: step.apply(self.context, module))
        except CompileError as err:
            raise Failure(_with_source(err, text), self._reproducer(text, filename, n, err)) from None
        except Exception as err:
            raise self._internal(f"pass {step.name}", err, self._reproducer(text, filename, n, err)) from err
        if self.options.no_verify_each and n < len(self.passes) - 1:
            return
        try:
            self.timed("(verify)", lambda: verify(module))
        except CompileError as err:
            if self.options.debug:
                print(
                    f"// -----// invalid IR after {step} //----- //\n{ir_text(module, True)}", end="", file=sys.stderr
                )
            notes = (f"note: the IR is not valid after pass {step.name}", self._reproducer(text, filename, n, err))
            raise Failure(_with_source(err, text), "\n".join(filter(None, notes))) from None

    def _internal(self, what: str, err: Exception, note: str | None = None) -> Failure:
        if self.options.debug:
            traceback.print_exception(err)
        detail = (str(err).strip() or "no message").splitlines()[0]
        message = f"internal error in {what}: {type(err).__name__}: {detail}"
        hint = "note: this is a fault of trc, not of the input; --debug shows the traceback"
        return Failure([Diagnostic(message)], "\n".join(filter(None, (hint, note))))

    def _reproducer(self, text: str, filename: str, n: int, err: Exception) -> str | None:
        """Write the IR before pass `n` and the line that runs the pass; the note says where."""
        if self.options.no_reproducer or self.options.verify_diagnostics:
            return None
        from trc.passes.registry import pipeline_text

        try:
            # The passes before it run once more, so that nothing is copied while all goes well.
            module = self.read(text, filename)
            for step in self.passes[:n]:
                step.apply(self.context, module)
            ir = ir_text(module)
        except Exception as again:
            return f"note: no reproducer, because the passes before it do not run a second time: {again}"
        failed = self.passes[n]
        directory = Path(self.options.reproducer_dir or tempfile.gettempdir())
        digest = hashlib.sha256(f"{failed}{ir}".encode()).hexdigest()[:8]
        path = directory / f"trc-opt-{failed.name}-{digest}.mlir"
        line = shlex.join(["trc-opt", str(path), "-p", pipeline_text([failed])])
        reason = (str(err).strip() or "no message").splitlines()[0]
        header = f"// Reproduce with:\n//   {line}\n// {versions()}\n// {type(err).__name__}: {reason}\n"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            write_file(path, header + ir)
        except OSError as problem:
            return f"note: no reproducer, {path}: {problem.strerror}"
        return f"note: reproducer written to {path}"


def _with_source(err: CompileError, text: str) -> list[Diagnostic]:
    return [problem if problem.source else problem.with_source(text) for problem in err.problems]


def ir_text(module: ModuleOp, generic: bool = False, places: bool = False) -> str:
    """The text of a module."""
    from xdsl.printer import Printer

    out = StringIO()
    Printer(out, generic, print_debuginfo=places).print_op(module)
    return out.getvalue() + "\n"


def parts(text: str, split: bool) -> list[str]:
    """The parts of a file. Each begins with empty lines, so that line numbers are those of the file."""
    if not split:
        return [text]
    found: list[str] = []
    start = 0
    for match in [*_SPLIT.finditer(text), None]:
        end = len(text) if match is None else match.start()
        found.append("\n" * text.count("\n", 0, start) + text[start:end])
        start = end if match is None else match.end()
    return found


def write_file(path: str | Path, text: str) -> None:
    """Write a file as a whole, or to a device such as /dev/null as it is."""
    from trc_runtime.schema.files import write_atomically

    write_atomically(path, text.encode(), make_folders=False)


def verify(module: ModuleOp) -> None:
    """CompileError with all problems of a module."""
    blocks = module.body.blocks
    if blocks and any(op.name.startswith("graph.") for op in blocks[0].ops):
        # Kinds are declared beside the layers; a module without graphs does not need them.
        import_module("trc.layers")
    from trc.dialects.verifier import verify as verify_module

    verify_module(module)


def list_passes() -> str:
    """All passes and named pipelines, each with its options and what it does."""
    from trc.passes.pipelines import NAMED_PIPELINES
    from trc.passes.registry import PASSES, option_texts, summary

    lines = ["passes:"]
    for name in PASSES:
        options = option_texts(name)
        lines.append(f"  {name}" + (f"{{{' '.join(options)}}}" if options else ""))
        lines.append(f"      {summary(name)}")
    lines.append("named pipelines:")
    for name, pipeline in NAMED_PIPELINES.items():
        lines.append(f"  {name}")
        lines.append(f"      {(pipeline.__doc__ or '').strip().splitlines()[0]}")
    return "\n".join(lines) + "\n"


def time_table(times: dict[str, float]) -> str:
    """The times in seconds, in the order of the first use."""
    total = sum(times.values())
    rows = [f"{seconds:10.4f}  {seconds / total if total else 0:6.1%}  {name}" for name, seconds in times.items()]
    return "\n".join([*rows, f"{total:10.4f}  100.0%  (all)"]) + "\n"


def read_input(file: str) -> str:
    """The text of the input; CompileError for a file that cannot be read."""
    from trc.dialects.parsing import decode

    if file == "-":
        buffer = getattr(sys.stdin, "buffer", None)
        return sys.stdin.read() if buffer is None else decode(buffer.read(), "<stdin>")
    try:
        return decode(Path(file).read_bytes(), file)
    except OSError as err:
        raise CompileError(f"cannot read {file}: {err.strerror}") from None


def run(options: argparse.Namespace) -> int:
    """Do what the options say; the exit code. CompileError for mistakes in the call itself."""
    if options.list_passes:
        print(list_passes(), end="")
        return 0
    passes: tuple[ModulePass, ...] = ()
    if options.passes is not None:
        from trc.passes.registry import parse_pipeline

        passes = parse_pipeline(options.passes)
    names = [step.name for step in passes]
    for name in options.print_after:
        if name not in names:
            raise CompileError(f"--print-after {name}: no such pass in the pipeline ({', '.join(names) or 'empty'})")
    source = read_input(options.file)
    filename = "<stdin>" if options.file == "-" else options.file
    from trc.dialects.context import make_context

    driver = Driver(options, passes, make_context())
    outputs: list[str] = []
    failed = False
    for part in parts(source, options.split_input_file):
        problems: list[Diagnostic] = []
        note: str | None = None
        try:
            outputs.append(driver.process(part, filename))
        except Failure as failure:
            problems, note = failure.problems, failure.note
        if options.verify_diagnostics:
            from trc.tools.expected import compare, read_expected

            problems = compare(read_expected(part, filename), problems, filename)
            note = note if problems else None
        failed = failed or bool(problems)
        if problems:
            print("\n".join(str(problem) for problem in problems), file=sys.stderr)
        if note:
            print(note, file=sys.stderr)
    if options.time_passes:
        print(time_table(driver.times), end="", file=sys.stderr)
    text = f"{SEPARATOR}\n".join(outputs)
    if options.output is None:
        print(text, end="")
    elif not failed:
        try:
            write_file(options.output, text)
        except OSError as err:
            raise CompileError(f"cannot write {options.output}: {err.strerror}") from None
    return 1 if failed else 0


def _discard_output() -> None:
    """Send what is still buffered nowhere: Python would complain once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(arguments: Sequence[str] | None = None) -> int:
    """The tool; its exit code is 0, or 1 after any error."""
    options = argument_parser().parse_args(arguments)
    try:
        code = run(options)
        print(end="", flush=True)  # a full disk shows here and not at the end of the process
        return code
    except CompileError as err:
        print(err, file=sys.stderr)
    except BrokenPipeError:
        _discard_output()  # whoever read the output has gone, as `| head` does
    except OSError as err:
        print(f"error: cannot write the output: {err.strerror or err}", file=sys.stderr)
        _discard_output()
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
