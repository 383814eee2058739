"""Any text at all gives a module or a message with a place, soon."""

from __future__ import annotations

import time

import pytest
from xdsl.dialects.builtin import FileLineColLoc, NameLoc

from tests.unit.dialects.test_memplan import text_of
from trc.diagnostics import CompileError, Location
from trc.dialects.context import make_context
from trc.dialects.parsing import MAX_NESTING, parse_module

REGION = "memplan.region POOL at 0 bytes 0"


def error_of(text: str | bytes) -> CompileError:
    start = time.perf_counter()
    with pytest.raises(CompileError) as caught:
        parse_module(text, "x.mlir")
    assert time.perf_counter() - start < 20  # a hang doubles with every character
    (problem,) = caught.value.problems
    assert problem.location is not None
    assert problem.location.file == "x.mlir"
    assert "\n" not in problem.message
    return caught.value


def test_operations_get_their_places():
    module = parse_module(f"\n  {REGION}\n{REGION} {REGION}\n", "x.mlir")
    places = [Location.from_attribute(op.location) for op in module.ops]
    assert [str(p) for p in places] == ["x.mlir:2:3", "x.mlir:3:1", f"x.mlir:3:{len(REGION) + 2}"]


def test_written_places_win():
    module = parse_module(f'{REGION} loc("net.bp":7:9)\n{REGION} loc("fc1"("net.bp":8:1))', "x.mlir")
    first, second = module.ops
    assert isinstance(first.location, FileLineColLoc)
    assert str(Location.from_attribute(first.location)) == "net.bp:7:9"
    assert isinstance(second.location, NameLoc)
    assert str(Location.from_attribute(second.location)) == "net.bp:8:1"


def test_message_shows_the_line():
    error = error_of("memplan.plan @m {mode = packed}\n\tmemplan.region W_FC at x bytes 0\n")
    assert str(error).splitlines()[1:] == ["  \tmemplan.region W_FC at x bytes 0", "  \t" + " " * 23 + "^"]
    assert str(error).startswith("x.mlir:2:25: error: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ('"abc', "before closing string literal"),
        ('"' + "a" * 100_000, "before closing string literal"),
        ('memplan.plan @"' + "a" * 1000, "before closing string literal"),
        ('"a\\q"', "before closing string literal"),
        ("nodialect.op", "x.mlir:1:1: error: unknown operation nodialect.op"),
        ("%0 = memplan.tensr @x", "x.mlir:1:6: error: unknown operation memplan.tensr; did you mean memplan.tensor?"),
        ('"builtin.module"() ({}) {a = dense<0> : tensor<1000000000xi64>} : () -> ()', "at most 1048576 elements"),
        ('"builtin.module"() ({}) {a = 1 : i1000000000} : () -> ()', "at most 4096 bits"),
        ('"builtin.module"() ({}) {a = ' + "9" * 5000 + "} : () -> ()", "cannot be read"),
        ("%0 = " + REGION, "has 0 results"),
        ("\0", ""),
        ("é", ""),
        ("}", ""),
        ("module { ^", ""),
        ("#-}", ""),
        ("{-# dialect_resources: {", ""),
        ('"builtin.module"() ({\n"test.x"(%0) : (i32) -> ()}) : () -> ()', ""),
        ("[" * 10_000, f"nested more than {MAX_NESTING} deep"),
        ("builtin.module {" * 5000, f"nested more than {MAX_NESTING} deep"),
        ('"builtin.module"() ({' * 5000, f"nested more than {MAX_NESTING} deep"),
        ('"builtin.module"() ({}) {a = ' + "tuple<" * 3000, f"nested more than {MAX_NESTING} deep"),
    ],
)
def test_damaged_text(text: str, message: str):
    assert message in str(error_of(text))


def test_nesting_up_to_the_limit_is_read():
    depth = MAX_NESTING - 1
    module = parse_module("builtin.module {" * depth + "}" * depth)
    assert len(list(module.walk())) == depth
    text_of(module)
    module.clone()
    parse_module('"builtin.module"() ({^bb0:}) {a = ' + "[" * (depth - 1) + "]" * (depth - 1) + "} : () -> ()")


def test_brackets_in_strings_and_comments_do_not_count():
    parse_module(f'// {"[" * 500}\n{REGION} attributes {{a = "{"(" * 500}", b = () -> ()}}')


def test_not_utf8():
    error = error_of(b"// fine\n// \xff")
    assert str(error) == "x.mlir:2:4: error: the file is no UTF-8 text (byte 0xff)"


def test_bytes_are_read():
    assert text_of(parse_module(REGION.encode())) == f"builtin.module {{\n  {REGION}\n}}"


def test_context_can_be_shared():
    context = make_context()
    for _ in range(2):
        parse_module(REGION, context=context)


def test_all_dialects_are_known():
    context = make_context()
    for name in ("arch.model", "memplan.tensor", "graph.step", "builtin.module"):
        assert context.get_optional_op(name) is not None
