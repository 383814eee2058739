"""How a problem is shown."""

from __future__ import annotations

import pickle

import pytest

from trc.diagnostics import CompileError, Diagnostic, Location


@pytest.mark.parametrize("column", [1, 50, 700, 1000])
def test_long_lines_are_shown_around_the_column(column: int) -> None:
    source = "a" * (column - 1) + "X" + "b" * (1000 - column)
    _, line, marker = str(Diagnostic("bad", Location("f", 1, column), None, source)).split("\n")
    assert len(line) < 260
    assert line[marker.index("^")] == "X"
    assert line.startswith("  ...") == (column > 200)
    assert line.endswith("...") == (column < 800)


def test_the_marker_stands_below_its_column_behind_tabs() -> None:
    shown = str(Diagnostic("bad", Location("f", 3, 4), "fc1", "\t\tx y"))
    assert shown == "f:3:4: error: layer 'fc1': bad\n  \t\tx y\n  \t\t ^"


def test_an_error_survives_pickling() -> None:
    problems = [Diagnostic("a", Location("f.bp", 2, 3), "fc1", "line"), Diagnostic("b")]
    error = CompileError(problems)
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert again.problems == error.problems
