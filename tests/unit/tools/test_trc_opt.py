"""trc-opt: what goes wrong is one message and exit code 1, and nothing is left half written."""

from __future__ import annotations

import io
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from trc.diagnostics import CompileError
from trc.dialects.memplan import RegionOp
from trc.passes import registry
from trc.tools import trc_opt
from trc.tools.trc_opt import main, parts, write_file

REGION = "memplan.region POOL at 0 bytes 256\n"


@dataclass(frozen=True)
class CrashPass(ModulePass):
    """Crashes."""

    name = "test-crash"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        raise ZeroDivisionError("a bug\nwith two lines")


@dataclass(frozen=True)
class BreakPass(ModulePass):
    """Leaves IR that is not valid."""

    name = "test-break"
    offset: int = 1

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        op.body.block.add_op(RegionOp("W_FC_BIAS", self.offset, 0))


@dataclass(frozen=True)
class RefusePass(ModulePass):
    """Refuses its input."""

    name = "test-refuse"
    why: str = "because"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        first = op.body.block.first_op
        assert first is not None
        raise CompileError.at(first, f"refused {self.why}", "fc1")


@dataclass(frozen=True)
class OnlyOncePass(ModulePass):
    """Works the first time."""

    name = "test-only-once"
    runs = 0

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        type(self).runs += 1
        if type(self).runs > 1:
            raise ValueError("not again")


@dataclass(frozen=True)
class NeedsPass(ModulePass):
    """Has an option without default, and a float."""

    name = "test-needs"
    number: int
    rate: float = 0.5
    sizes: tuple[int, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        op.body.block.add_op(RegionOp("W_FC_BIAS", 256 * self.number, 0))


@pytest.fixture(autouse=True)
def passes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    module = types.ModuleType("test_passes_of_trc_opt")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for cls in (CrashPass, BreakPass, RefusePass, OnlyOncePass, NeedsPass):
        setattr(module, cls.__name__, cls)
        monkeypatch.setitem(registry.PASSES, cls.name, f"{module.__name__}:{cls.__name__}")
    OnlyOncePass.runs = 0
    yield
    registry.load_pass.cache_clear()


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "in.mlir"
    path.write_text(REGION)
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    out, err = capsys.readouterr()
    assert "Traceback" not in err or "--debug" in arguments
    return code, out, err


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    for arguments in ((), ("-",)):
        monkeypatch.setattr(sys, "stdin", io.StringIO(REGION))
        assert run(capsys, *arguments) == (0, f"builtin.module {{\n  {REGION}}}\n", "")


def test_standard_input_that_is_no_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff")))
    assert run(capsys)[::2] == (1, "<stdin>:1:1: error: the file is no UTF-8 text (byte 0xff)\n")


def test_crash_of_a_pass(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    where = tmp_path / "new" / "folder"
    code, out, err = run(capsys, file, "-p", "arch-rename-bn,test-crash", "--reproducer-dir", str(where))
    assert (code, out) == (1, "")
    first, second, third = err.splitlines()
    assert first == "error: internal error in pass test-crash: ZeroDivisionError: a bug"
    assert "--debug" in second
    (written,) = where.iterdir()
    assert third == f"note: reproducer written to {written}"
    text = written.read_text()
    assert f"//   trc-opt {written} -p test-crash\n" in text
    assert text.endswith(f"builtin.module {{\n  {REGION}}}\n")
    code, _, err = run(capsys, str(written), "-p", "test-crash", "--no-reproducer")
    assert (code, err.splitlines()[0]) == (1, first)


def test_debug_shows_the_traceback(file: str, capsys: pytest.CaptureFixture[str]):
    _, _, err = run(capsys, file, "-p", "test-crash", "--debug", "--no-reproducer")
    assert "Traceback" in err
    assert "raise ZeroDivisionError" in err


def test_refusal_of_a_pass(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    code, _, err = run(capsys, file, "-p", 'test-refuse{why="a b"}', "--reproducer-dir", str(tmp_path))
    assert code == 1
    assert err.startswith(f"{file}:1:1: error: layer 'fc1': refused a b\n  {REGION}  ^\nnote: reproducer")
    (written,) = tmp_path.glob("trc-opt-test-refuse-*.mlir")
    assert """-p 'test-refuse{why="a b"}'""" in written.read_text()


def test_reproducers_have_names_by_content(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for why in ("a", "a", "b"):
        run(capsys, file, "-p", f"test-refuse{{why={why}}}", "--reproducer-dir", str(tmp_path))
    assert len(list(tmp_path.glob("trc-opt-test-refuse-*.mlir"))) == 2


def test_reproducer_folder_that_cannot_be(file: str, capsys: pytest.CaptureFixture[str]):
    code, _, err = run(capsys, file, "-p", "test-refuse", "--reproducer-dir", f"{file}/folder")
    assert code == 1
    assert "note: no reproducer" in err


def test_no_reproducer_from_passes_that_change_their_mind(file: str, capsys: pytest.CaptureFixture[str]):
    code, _, err = run(capsys, file, "-p", "test-only-once,test-refuse")
    assert code == 1
    assert "note: no reproducer, because the passes before it do not run a second time: not again" in err


def test_verify_each(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    code, out, err = run(capsys, file, "-p", "test-break,test-refuse", "--reproducer-dir", str(tmp_path))
    assert (code, out) == (1, "")
    assert "the offset 1 is no multiple of 256" in err
    assert "note: the IR is not valid after pass test-break" in err
    assert list(tmp_path.glob("trc-opt-test-break-*.mlir"))
    _, _, err = run(capsys, file, "-p", "test-break,test-refuse", "--no-verify-each", "--no-reproducer")
    assert "refused" in err
    _, _, err = run(capsys, file, "-p", "test-break", "--no-verify-each", "--no-reproducer")
    assert "the offset 1 is no multiple of 256" in err, "the output is verified in any case"


def test_output_file(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    target = tmp_path / "out.mlir"
    assert run(capsys, file, "-o", str(target)) == (0, "", "")
    before = target.read_text()
    assert REGION in before
    assert target.stat().st_mode & 0o777 == Path(file).stat().st_mode & 0o777
    assert run(capsys, file, "-p", "test-refuse", "-o", str(target), "--no-reproducer")[0] == 1
    assert target.read_text() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.mlir", "out.mlir"]


def test_write_file_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(trc_opt.os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_file(tmp_path / "a", "text")
    assert list(tmp_path.iterdir()) == []


def test_options_of_passes(file: str, capsys: pytest.CaptureFixture[str]):
    code, out, _ = run(capsys, file, "-p", "test-needs{number=2 rate=1 sizes=1,2}")
    assert (code, "W_FC_BIAS at 512" in out) == (0, True)
    assert run(capsys, file, "-p", "test-needs{rate=1e-8 number=2}")[0] == 0
    for options, message in {
        "": "pass test-needs needs the option number",
        "{rate=x number=1}": "option rate of pass test-needs is a number, not 'x'",
        "{number=1.5}": "option number of pass test-needs is an integer, not '1.5'",
        "{number}": "option number of pass test-needs is an integer, not 'nothing'",
        "{number=1 sizes=a}": "option sizes of pass test-needs is tuple[int, ...], not 'a'",
        "{number=1 numbr=1}": "did you mean 'number'? (it takes number, rate, sizes)",
    }.items():
        code, _, err = run(capsys, file, "-p", f"test-needs{options}")
        assert code == 1
        assert message in err


@pytest.mark.parametrize(
    "text", ["{", "}", "=", "a{b", 'a{b="', "a b", ",", ",,", "a(b)", "@", "\0", "é", "a{b=1", "[]"]
)
def test_any_pipeline_text_gives_a_message(text: str, file: str, capsys: pytest.CaptureFixture[str]):
    code, out, err = run(capsys, file, "-p", text)
    assert (code, out) == (1, "")
    assert err.startswith("error: ")


def test_split_keeps_line_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "in.mlir"
    path.write_text(f"{REGION}// -----\n\nnonsense\n// -----  \n{REGION}")
    code, out, err = run(capsys, str(path), "--split-input-file")
    assert code == 1
    assert out.count("POOL") == 2
    assert out.count("// -----\n") == 1
    assert err.startswith(f"{path}:4:1: error:")


def test_parts():
    assert parts("a\n// -----\nb", split=False) == ["a\n// -----\nb"]
    assert parts("a\n// -----\nb\n// ----- not\nc", split=True) == ["a\n", "\n\nb\n// ----- not\nc"]


def test_expected_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "in.mlir"

    def result(text: str, *more: str) -> tuple[int, str]:
        path.write_text(text)
        code, _, err = run(capsys, str(path), "--verify-diagnostics", *more)
        return code, err

    assert result("// nothing\n" + REGION) == (0, "")
    assert result("x // expected-error {{unknown operation}}") == (0, "")
    assert result("// expected-error@+2 {{unknown operation}}\n\nx") == (0, "")
    assert result("// expected-error@+1 {{region W}} expected-error@+1 {{length}}\nmemplan.region W at 0 bytes 1") == (
        0,
        "",
    )
    code, err = result("x // expected-error {{other}}")
    assert code == 1
    assert "unexpected error: unknown operation x" in err
    assert f"{path}:1:1: error: expected error in line 1 did not occur: other" in err
    assert result("// expected-error@unknown {{internal error}}\n" + REGION, "-p", "test-crash") == (0, "")
    assert result("// expected-error@+1 {{layer 'fc1': refused}}\n" + REGION, "-p", "test-refuse") == (0, "")


def test_help_fits_one_page(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100


def test_unknown_argument(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as stop:
        main(["--frobnicate"])
    assert stop.value.code == 1
    assert capsys.readouterr().err == "error: unrecognized arguments: --frobnicate (see trc-opt --help)\n"


def test_reader_that_goes_away(file: str):
    command = f"'{sys.executable}' -m trc.tools.trc_opt '{file}' | true"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""


def test_reading_ir_imports_no_compiler():
    code = "import sys, trc.tools.trc_opt as t; sys.exit(t.main(['-']) or any(m in sys.modules for m in %r))"
    heavy = ["lark", "trc.layers", "trc.passes.pipelines", "trc.passes.plan", "trc.session"]
    done = subprocess.run(
        [sys.executable, "-c", code % heavy], input=REGION, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("comment", "message"),
    [
        ("// expected-error {{unclosed", "malformed expectation: write expected-error {{part of the message}}"),
        ("// expected-warning {{a}}", "malformed expectation: write expected-error"),
        ("// expected-error@above {{a}}", "malformed expectation: write expected-error"),
        ("// expected-error {{}}", "malformed expectation: it names no message"),
        ("// expected-error {{a}} expected-error @+1 {b}", "malformed expectation: write expected-error"),
    ],
)
def test_expectations_that_cannot_be_read_do_not_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], comment: str, message: str
):
    path = tmp_path / "in.mlir"
    path.write_text(f"builtin.module {{}}\n{comment}\n")
    code, _, err = run(capsys, str(path), "--verify-diagnostics")
    assert code == 1
    assert message in err
    assert err.startswith(f"{path}:2:")


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "in.mlir"
    path.write_bytes(b"\xef\xbb\xbf" + REGION.encode())
    marked = run(capsys, str(path))
    path.write_text(REGION)
    assert marked == run(capsys, str(path))
    assert marked[0] == 0


@pytest.mark.parametrize("text", ["", "  \n\n"])
def test_an_empty_file_is_called_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str):
    path = tmp_path / "in.mlir"
    path.write_text(text)
    code, _, err = run(capsys, str(path))
    assert code == 1
    assert err.startswith(f"{path}:1:1: error: the file is empty; write for instance builtin.module {{}}")


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        ("plan{batch=3 batch=4}", "option 'batch' is given twice"),
        ("plan-create-compile-specs{val-batch=3 val_batch=4}", "option 'val-batch' is given twice"),
        ("plan{batch=99999999999999999999}", "plan: option batch: 99999999999999999999 does not fit into 64 bits"),
        (
            "arch-normalize-softmax-ce{num-classes=99999999999999999999}",
            "option num-classes of pass arch-normalize-softmax-ce: 99999999999999999999 does not fit into 64 bits",
        ),
    ],
)
def test_options_that_would_be_lost(file: str, capsys: pytest.CaptureFixture[str], pipeline: str, message: str):
    code, _, err = run(capsys, file, "-p", pipeline)
    assert code == 1
    assert message in err
    assert "internal error" not in err
