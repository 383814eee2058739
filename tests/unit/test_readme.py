"""What README shows is what the tools print, and its Python runs."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from trc.tools.trc_compile import main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MODEL = ROOT / "examples/models/mlp.bp"
BLOCK = re.compile(r"<!-- (trc-compile|file): (.*?) -->\n\n```\w*\n(.*?)```", re.DOTALL)
SKIP = "..."


def blocks(kind: str) -> Iterator[tuple[str, str]]:
    return ((m[2], m[3]) for m in BLOCK.finditer(README) if m[1] == kind)


def missing_line(shown: str, actual: str) -> str | None:
    """The first line of `shown` that does not follow in `actual`; `...` stands for any number of lines."""
    lines = [line.rstrip() for line in actual.splitlines()]
    at, skipping = 0, True
    for line in (line.rstrip() for line in shown.splitlines()):
        if line.strip() == SKIP:
            skipping = True
            continue
        place = lines.index(line, at) if skipping and line in lines[at:] else at
        if place >= len(lines) or lines[place] != line:
            return line
        at, skipping = place + 1, False
    return None


def test_every_stage_is_shown() -> None:
    stages = {args.split("--compile-to ")[1].split()[0] for args, _ in blocks("trc-compile")}
    assert stages == {"import", "arch", "shapes", "plan", "graph", "schedule", "atlas"}


@pytest.mark.parametrize(("args", "shown"), list(blocks("trc-compile")), ids=lambda v: v[:40].replace("\n", " "))
def test_ir_blocks(args: str, shown: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["examples/models/mlp.bp", *args.split()]) == 0
    assert missing_line(shown, capsys.readouterr().out) is None


def test_the_model_is_shown_whole() -> None:
    (path, shown), *others = blocks("file")
    assert not others
    assert (ROOT / path).read_text(encoding="utf-8") == shown


def test_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert code is not None
    monkeypatch.chdir(tmp_path)
    exec(compile(code[1], "README.md", "exec"), {"__name__": "readme"})
    assert "memory of net" in capsys.readouterr().out
    assert (tmp_path / "build/net/manifest.json").is_file()


def test_the_checker_of_blocks_can_fail() -> None:
    actual = "a\nb\nc\nd"
    assert missing_line("a\nb", actual) is None
    assert missing_line("b\n...\nd", actual) is None
    assert missing_line("a\nc", actual) == "c"
    assert missing_line("a\n...\nx", actual) == "x"
