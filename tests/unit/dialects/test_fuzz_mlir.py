"""A thousand damaged IR texts: each gives a module or messages with places, never a traceback, never a hang."""

from __future__ import annotations

from io import StringIO

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp
from xdsl.printer import Printer

import trc.layers  # noqa: F401  # pyright: ignore[reportUnusedImport]
from trc.diagnostics import CompileError
from trc.dialects.parsing import parse_module
from trc.dialects.verifier import problems

ARCH = """\
arch.model @net(%input: tensor<?x4x4x3xf32>) {
  %0 = arch.conv %input {out_channels = 8, kernel = 3} layer "conv1"
  %1 = arch.relu %0
  %2 = arch.add %1, %0
  %3 = arch.leaky_relu %2 {slope = 0.1}
  %4 = arch.softmax_ce %3 {num_classes = 10, label_smoothing = 0.1}
  arch.output %4
}
"""
MEMPLAN = """\
memplan.spec @train_base {precision = amp_fp16, batch = 200, height = 28, width = 28, channels = 1}
memplan.plan @net {mode = packed, total = 12544}
memplan.region W_FC_BIAS at 0 bytes 512 // the first
memplan.tensor @fc1.weight W_FC_WEIGHT f32 [10, 1, 1, 16] init trunc_normal 0.02 layer "fc1" slot 1536 at 512
memplan.tensor @y F_FEATURE_FP16 f16 [[200, 1, 1, 10], -, [2, 1, 1, 10], -, -, -] attributes {a = "b", c = [1.0e-3]}
"""
GRAPH = """\
graph.computation @train {
  graph.bucket DEEP_FWD_BWD on COMP_1 {
    graph.compute dropout_fwd reads(@y) writes(@y, @mask) scalars(@seed, @n) {p = 0.1, stream = 7} on COMP_2 layer "d"
    graph.range clear writes(G_BN_BIAS to G_DEEP_CONV)
  }
}
graph.variant @train_base uses @train
graph.step @a of @train columns [0, 2] buckets [DEEP_FWD_BWD] after [[], [0]]
graph.atlas captures [@train DEEP_FWD_BWD [4, 2, 2, 1] column 0] table {train_base [DEEP_FWD_BWD = 0]}
"""
GENERIC = """\
"memplan.tensor"() <{sym_name = "w", region = #memplan.region<W_FC_BIAS>, dtype = f32, shapes = array<i64: 1, 1, 1, 1>,
  initial = #memplan.initial<kaiming_uniform fan 9>}> : () -> () loc("net.bp":3:5)
"graph.computation"() <{sym_name = "train"}> ({
  "graph.bucket"() <{id = #graph.id<ZERO_GRAD>, stream = #graph.stream<UPDATE>}> ({
    "graph.range"() <{kind = "clear", writes = [#graph.range<G_BN_BIAS to G_DEEP_CONV>]}> : () -> ()
  }) : () -> ()
}) : () -> ()
"graph.step"() <{sym_name = "a", computation = @train, columns = array<i32: 0>, buckets = [#graph.id<ZERO_GRAD>],
  starts = array<i32: 0, 0>, after = array<i32>}> : () -> ()
"""
SEEDS = (ARCH, MEMPLAN, GRAPH, GENERIC)

PIECES = (
    *'"\\@%#!^$&;:,.<>()[]{}=-+*/|?0 \n\t\0',
    "//",
    "->",
    "loc(",
    "{-#",
    "é",
    "\U0001f600",
    "-1",
    "99999999999999999999",
    "9" * 5000,
    "1e999",
    "1.0e400",
    "0x7FF0000000000000 : f64",
    "true",
    "dense<0> : tensor<999999999x9xf32>",
    "dense<[]> : tensor<0xi64>",
    "array<i64: 1>",
    "array<i1: true>",
    "i99999999",
    "tensor<*xf32>",
    "tensor<-1xf32>",
    "affine_map<(d0) -> (d0 floordiv 0)>",
    "@x::@y",
    "#memplan.region<W_FC_BIAS>",
    "#builtin.int<3>",
    "!unknown.type",
    "unit",
    "({",
    "}) : () -> ()",
    "(" * 100,
    '"\\FF"',
    "builtin.module {",
    "NaN",
)

edit = st.tuples(
    st.sampled_from(["insert", "delete", "copy", "replace", "cut"]),
    st.floats(0, 1, exclude_max=True),
    st.integers(1, 40),
    st.sampled_from(PIECES),
    st.floats(0, 1, exclude_max=True),
)


def damaged(text: str, edits: list[tuple[str, float, int, str, float]]) -> str:
    """A text after some edits: pieces put in, taken out, moved, replaced, or all cut off from a place on."""
    for what, where, length, piece, other in edits:
        at = int(where * len(text))
        to = int(other * len(text))
        if what == "insert":
            text = text[:at] + piece + text[at:]
        elif what == "delete":
            text = text[:at] + text[at + length :]
        elif what == "copy":
            text = text[:to] + text[at : at + length] + text[to:]
        elif what == "replace":
            text = text[:at] + piece + text[at + length :]
        elif other > 0.7:
            text = text[:at]
    return text


def printed(module: ModuleOp, generic: bool) -> str:
    out = StringIO()
    Printer(out, print_generic_format=generic).print_op(module)
    return out.getvalue()


@settings(max_examples=1000, deadline=3000, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
@given(st.sampled_from(SEEDS), st.lists(edit, min_size=1, max_size=4))
def test_damaged_text_gives_messages(seed: str, edits: list[tuple[str, float, int, str, float]]):
    text = damaged(seed, edits)
    try:
        module = parse_module(text, "x.mlir")
    except CompileError as err:
        for problem in err.problems:
            assert problem.location is not None
            assert "Traceback" not in str(problem)
        return
    found = problems(module)
    for problem in found:
        assert "cannot be verified" not in problem.message, problem
    if not found:
        # What is accepted prints, and what it prints reads back.
        for generic in (False, True):
            once = printed(module, generic)
            assert printed(parse_module(once), generic) == once


def test_undamaged_texts_are_read():
    for seed in SEEDS:
        parse_module(seed)
