from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trc.blueprint as bp
from tests.unit.blueprint.networks import TEXTS, blueprints, layers
from trc.diagnostics import CompileError, Location

MLP = bp.BluePrint(
    bp.seq(bp.fc(1024), bp.relu(), bp.fc(512), bp.relu(), bp.fc(10)),
    "mlp",
)


def error_of(text: str) -> CompileError:
    with pytest.raises(CompileError) as caught:
        bp.parse_blueprint(text, "net.bp")
    return caught.value


def test_the_articles_snippets_parse_as_they_stand() -> None:
    assert bp.parse_blueprint(TEXTS[0]) == MLP
    # Article 13 prints expressions without a name or a semicolon.
    bottleneck = bp.parse_blueprint("""seq(
    conv(64, 1, 1, 0), bn(), relu(),
    conv(64, 3, 1, 1), bn(), relu(),
    conv(256, 1, 1, 0), bn()
)""")
    conv = [bp.conv(64, 1), bp.conv(64, 3, 1, 1), bp.conv(256, 1)]
    assert bottleneck.root == bp.seq(conv[0], bp.bn(), bp.relu(), conv[1], bp.bn(), bp.relu(), conv[2], bp.bn())
    assert bp.parse_blueprint("block(64, 256, RESNET_1_3_1)").root == bp.block(64, 256, bp.RESNET_1_3_1)
    assert bp.parse_blueprint("seq(fc(1024), relu())").name == "model"


def test_the_rest_of_the_language() -> None:
    net = bp.parse_blueprint(TEXTS[1])
    assert net.name == "net"
    assert net.input == (32, 32, 3)
    stage = bp.seq(bp.conv(64, 3, 1, 1, True, name="c"), bp.bn(0.1, 1e-3), bp.leaky_relu(0.2))
    assert net.root.children == (
        bp.cbr(64, 7, 2, 3, act="relu6"),
        stage,
        bp.add2(bp.identity(), stage, name="res"),
        bp.repeat(bp.block(64, 256, bp.RESNET_1_3_1), 3),
        bp.block(64, bp.MB_E6_K3_DS),
        bp.mbconv(6, 24, 2),
        bp.seq(bp.gap(), bp.dropout(0.5), bp.gap_fc(10, False, name="head.fc")),
    )
    assert bp.parse_blueprint(TEXTS[2]).input == (28, 28, 1)
    assert bp.parse_blueprint("\ufeffBluePrint a = relu();\r\n").root == bp.relu()
    assert bp.parse_blueprint("bn(1, eps=1.f)").root == bp.bn(1.0, 1.0)
    for name in ("autoencoder", "Layers", "trues", "BluePrint2"):
        assert bp.parse_blueprint(f"BluePrint {name} = relu();").name == name


def test_layers_know_their_place() -> None:
    net = bp.parse_blueprint("BluePrint a = seq(\n    fc(3), relu()\n);", "a.bp")
    assert net.root.source == Location("a.bp", 1, 15)
    assert [child.source for child in net.root.children] == [Location("a.bp", 2, 5), Location("a.bp", 2, 12)]


def test_an_error_shows_the_line_with_a_marker() -> None:
    text = "BluePrint net = seq(\n    fc(1024), rleu(),\n    fc(10)\n);\n"
    assert str(error_of(text)) == (
        "net.bp:2:15: error: unknown layer 'rleu' (did you mean 'relu'?)\n      fc(1024), rleu(),\n                ^"
    )


MEANING = [
    ("seq(rleu())", "1:5: error: unknown layer 'rleu' (did you mean 'relu'?)"),
    ("seq(foobarbaz(relo()))", "1:15: error: unknown layer 'relo'"),
    ("Conv(8, 3)", "1:1: error: unknown layer 'Conv' (did you mean 'conv'?)"),
    ("fc(1.5)", "1:4: error: fc: argument 'out_features' must be a whole number, not 1.5"),
    ("fc(10.0f)", "1:4: error: fc: argument 'out_features' must be a whole number, not 10.0"),
    ("fc(-3)", "1:4: error: fc: argument 'out_features' must be from 1 to 16777216, not -3"),
    ("fc(16777217)", "1:4: error: fc: argument 'out_features' must be from 1 to 16777216, not 16777217"),
    ("fc(" + "9" * 30 + ")", "1:4: error: the number is too large; it has 30 digits"),
    ("fc(10, 1)", "1:8: error: fc: argument 'bias' must be true or false, not 1"),
    ("fc(10, TRUE)", "1:8: error: 'TRUE' is not defined (did you mean 'true'?)"),
    ('fc("10")', "1:4: error: fc: argument 'out_features' must be a whole number, not '10'"),
    ("fc(relu())", "1:4: error: fc: argument 'out_features' must be a whole number, not the layer relu(...)"),
    ("fc()", "1:1: error: fc: argument 'out_features' is missing; write fc(out_features, bias=true)"),
    ("conv(3)", "1:1: error: conv: argument 'k' is missing; write conv(out_ch, k, s=1, p=0, bias=false)"),
    ("relu(3)", "1:1: error: relu: takes at most 0 arguments, not 1; write relu()"),
    ("fc(10, bais=true)", "1:8: error: fc: no argument is called 'bais' (did you mean 'bias'?)"),
    ("conv(8, kernel=3)", "1:9: error: conv: no argument is called 'kernel'; write conv(out_ch, k, "),
    ("fc(10, out_features=3)", "1:21: error: fc: argument 'out_features' is given twice"),
    ("fc(bias=true, bias=true)", "1:15: error: fc: argument 'bias' is given twice"),
    ("fc(bias=true, 10)", "1:15: error: fc: arguments by position come before those by keyword"),
    ("bn(eps=-1)", "1:8: error: bn: argument 'eps' must be greater than 0 and at most 1, not -1"),
    ("dropout(1.0f)", "1:9: error: dropout: argument 'p' must be at least 0 and less than 1, not 1.0"),
    ("elu(1e999)", "1:5: error: elu: argument 'alpha' must be finite and greater than 0, not inf"),
    ("maxpool(2, 2, 2)", "1:15: error: maxpool: argument 'p' must be less than k=2"),
    ("maxpool(k=2, p=3, s=2)", "1:16: error: maxpool: argument 'p' must be less than k=2"),
    ("group_conv(10, 3, 1)", "1:12: error: group_conv: argument 'out_ch' must be a multiple of groups=3, not 10"),
    ("cbr(3, 3, act=silu)", "1:15: error: cbr: argument 'act' must be relu or relu6, not 'silu'"),
    ("seq()", "1:1: error: seq: is empty; give it at least one layer"),
    ("seq(fc(1), 3)", "1:12: error: seq: 2 layers given, and number 2 is 3, not a layer"),
    ("seq(relu)", "1:5: error: 'relu' is a layer; write relu()"),
    ("add2(relu())", "1:1: error: add2: argument 'stem' is missing; write add2(shortcut, stem)"),
    ("add2(relu(), 5)", "1:14: error: add2: argument 'stem' must be a layer, not 5"),
    ("repeat(relu(), 0)", "1:16: error: repeat: argument 'times' must be from 1 to 100000, not 0"),
    ("repeat(relu(), 1000000000)", "1:16: error: repeat: argument 'times' must be from 1 to 100000"),
    ("repeat(repeat(relu(), 1000), 1000)", "1:30: error: repeat: this makes 1,000,000 layers when written out"),
    ("block(64, 256, RESNET_3_3)", "1:16: error: block: style RESNET_3_3 has no argument 'mid'; write block(out, "),
    ("block(64, RESNET_1_3_1)", "1:11: error: block: style RESNET_1_3_1 needs the channels of the middle too"),
    ("block(64, 64, RESNET_1_3)", "1:15: error: 'RESNET_1_3' is not defined (did you mean 'RESNET_1_3_1'?)"),
    ("block(0, RESNET_3_3)", "1:7: error: block: argument 'out' must be from 1"),
    ("block(0, 1, RESNET_1_3_1)", "1:7: error: block: argument 'mid' must be from 1"),
    ("block(64, 3)", "1:1: error: block: argument 'style' is missing; write block([mid,] out, style)"),
    ("mbconv(3, 4, 1)", "1:8: error: mbconv: argument 'expand' must be 1 or 6, not 3"),
    ('fc(10, name="a b")', "1:13: error: layer 'a b': fc: argument 'name' must be letters, digits"),
    ("fc(10, name=3)", "1:13: error: fc: argument 'name' must be letters, digits"),
    ("seq(relu(), name=relu)", "1:18: error: 'relu' is a layer; write relu()"),
    ("auto x = y;", "1:10: error: 'y' is not defined; definitions come before their use"),
    ("auto x = RESNET_3_3;", "1:10: error: a layer is needed here, such as fc(10), not RESNET_3_3"),
    ("auto x = 3;", "1:10: error: a layer is needed here, such as fc(10), not 3"),
    ("auto x = x;", "1:10: error: 'x' is not defined"),
    ("auto a = gap();\nauto a = gap();", "2:6: error: 'a' is defined twice, first in line 1; choose another name"),
    ("auto relu = gap();", "1:6: error: 'relu' is the name of a layer; choose another name"),
    ("auto MB_E1_K3 = gap();", "1:6: error: 'MB_E1_K3' is the name of a block style; choose another name"),
    (f"auto {'a' * 300} = gap();", "1:6: error: it must be letters, digits and '_' (at most 200"),
    ("auto a = gap(); a()", "1:17: error: 'a' is a definition; use it without parentheses"),
    ("fc(10);fc(10);", "1:1: error: fc(...) is not used; begin with 'BluePrint NAME =' to define a network"),
    ("input(1, 2, 3);", "1:1: error: the text defines no network"),
    ("input(1, 2, 3); input(1, 2, 3); gap()", "1:17: error: input(...) is given twice"),
    ("input(1, 2);gap()", "1:1: error: input: argument 'c' is missing; write input(h, w, c)"),
    ("input(1, 2, 0);gap()", "1:13: error: input: argument 'c' must be from 1"),
    ('input(1, 2, 3, name="x");gap()', "1:21: error: layer 'x': input: has no argument 'name'"),
    ("seq(relu(), input(1, 2, 3))", "1:13: error: seq: 2 layers given, and number 2 is input(...)"),
    ("add2(input(1, 2, 3), relu())", "1:6: error: add2: argument 'shortcut' must be a layer without input(...)"),
    ("seq(input(1, 2, 3))", "1:1: error: a network needs at least one layer after input(...)"),
    ("auto a = input(1, 2, 3);", "1:6: error: a network needs at least one layer after input(...)"),
    ("input(1, 1, 1); auto a = seq(input(2, 2, 2), gap());", "1:22: error: argument 'input' is (1, 1, 1), but"),
    ("", "1:1: error: the text defines no network; write for instance BluePrint net = seq(fc(10));"),
    (";;", "1:1: error: unexpected ';'"),
]


@pytest.mark.parametrize(("text", "message"), MEANING, ids=[m[0][:30] for m in MEANING])
def test_mistakes_of_meaning(text: str, message: str) -> None:
    assert message in str(error_of(text)).replace("net.bp:", "", 1)


SYNTAX = [
    ("BluePrint a = seq(fc(10) relu());", "1:25: error: a ',' is missing before 'relu'"),
    ("seq(fc(10)\n    relu());", "1:11: error: a ',' is missing before 'relu'"),
    ("seq(fc(10) // a\n  /* b\n */ relu());", "1:11: error: a ',' is missing before 'relu'"),
    ("BluePrint a = seq(fc(10), relu();", "1:15: error: 'seq(' is not closed: ';' in line 1 comes before its ')'"),
    ("auto a = seq(fc(10)\nBluePrint b = a;", "1:10: error: 'seq(' is not closed: 'BluePrint' in line 2 comes"),
    ('seq(fc(10), /* ( */ fc(1, name="(")', "1:1: error: 'seq(' is not closed: the text ends before its ')'"),
    ("seq(fc(10", "1:5: error: 'fc(' is not closed: the text ends before its ')'"),
    ("seq(fc(10)));", "1:12: error: this ')' closes nothing"),
    ("fc(10,,true)", "1:7: error: an argument is missing before this ','"),
    ("seq(, relu())", "1:5: error: an argument is missing before this ','"),
    ("fc(bias=)", "1:9: error: a value is missing before this ')'"),
    ("auto a = gap() auto b = a;", "1:15: error: a ';' is missing before 'auto'"),
    ("auto a = gap() gap()", "1:15: error: a ';' is missing before 'gap'"),
    ("a = gap();", "1:1: error: a definition begins with 'BluePrint'; write BluePrint a = ..."),
    ("Blueprint a = gap();", "1:1: error: unknown type 'Blueprint' (did you mean 'BluePrint'?)"),
    ("BluePrint = gap();", "1:11: error: unexpected '='; expected a name"),
    ("BluePrint a;", "1:12: error: unexpected ';'; expected '='"),
    ("BluePrint a =", "1:14: error: the text ends too early; expected "),
    ("auto a = gap(); // done\na", "2:2: error: the text ends too early; expected '('"),
    ("gap() /* foo", "1:7: error: this comment does not end; add the closing '*/'"),
    ('fc(10, name="head)', "1:13: error: this string does not end; add the closing '\"' in the same line"),
    ("fc(10, name='head')", '1:13: error: unexpected "\'"; strings stand in double quotes'),
    ("# a comment", "1:1: error: unexpected '#'; comments begin with '//'"),
    ("seq({fc(10)})", "1:5: error: unexpected '{'; layers stand in parentheses"),
    ("seq([fc(10)])", "1:5: error: unexpected '['; layers stand in parentheses"),
    ("gap(\0)", "1:5: error: unexpected character U+0000\n  gap(?)\n      ^"),
    ("gap(é)", "1:5: error: unexpected 'é'"),
    ("seq(true = 3)", "1:10: error: unexpected '='; expected ')' or ','"),
    ("3", "1:1: error: unexpected '3'; expected 'BluePrint', a name or the end of the text"),
]


@pytest.mark.parametrize(("text", "message"), SYNTAX, ids=[m[0][:30] for m in SYNTAX])
def test_mistakes_of_syntax(text: str, message: str) -> None:
    assert message in str(error_of(text)).replace("net.bp:", "", 1)


def test_all_mistakes_of_meaning_are_reported_at_once() -> None:
    err = error_of("auto a = seq(rleu(), fc(1.5));\nauto b = seq(a, conv(3), c);\nseq(a, b, gapp())")
    places = [(p.location.line, p.location.column) for p in err.problems if p.location]
    assert places == [(1, 14), (1, 25), (2, 17), (2, 26), (3, 11)]
    err = error_of("seq(" + "relo()," * 50 + ")")
    assert len(err.problems) == 21
    assert str(err).endswith("error: 30 more problems not shown")


def test_a_very_long_line_is_not_shown_whole() -> None:
    shown = str(error_of("seq(relo()," + "relu()," * 1000 + ")"))
    assert len(shown) < 500
    assert shown.splitlines()[1].endswith("...")
    assert "\n" not in str(error_of("seq(" + "relu()," * 1000 + "relo())"))


HOSTILE = {
    "open": ("seq(" * 20_000, "'seq(' is not closed"),
    "nested": ("seq(" * 20_000 + "relu()" + ")" * 20_000, "1:193: error: layers nest more than 48 deep"),
    "nested definitions": (
        "auto a0 = relu();" + "".join(f"auto a{i} = seq(a{i - 1});" for i in range(1, 100)),
        "nest more than 48 deep",
    ),
    "doubling": (
        "auto a0 = relu();" + "".join(f"auto a{i} = seq(a{i - 1}, a{i - 1});" for i in range(1, 100)),
        "this makes 131,072 layers",
    ),
    "digits": (f"fc({'9' * 100_000})", "the number is too large"),
    "unknown": ("seq(" + "relo()," * 5_000 + ")", "unknown layer 'relo'"),
    "undefined": ("seq(" + ",".join(f"x{i}" for i in range(5_000)) + ")", "'x0' is not defined"),
    "many names": ("".join(f"auto d{i}=gap();" for i in range(2_000)) + "seq(" + "d1x," * 2_000 + ")", "'d1x'"),
    "long name": ("seq(" + "r" * 100_000 + "())", "unknown layer 'rrr"),
    "comments": ("/*" * 50_001, "error"),
    "quotes": ('"' * 50_001, "error"),
    "too long": (" " * (2 * 1024 * 1024 + 1), "at most 2,097,152 are read"),
}


@pytest.mark.parametrize("which", HOSTILE)
def test_hostile_texts_give_a_message_soon(which: str) -> None:
    text, message = HOSTILE[which]
    begin = time.perf_counter()
    err = error_of(text)
    assert message in str(err)
    assert len(str(err)) < 20_000
    assert time.perf_counter() - begin < 10


def test_files(tmp_path: Path) -> None:
    good = tmp_path / "mlp.bp"
    good.write_text(TEXTS[0])
    net = bp.load_blueprint(good)
    assert net == MLP
    assert net.root.source == Location(str(good), 1, 17)
    for name, data, message in (
        ("empty.bp", b"", "empty.bp:1:1: error: the file is empty"),
        ("latin.bp", b"gap()\n// caf\xe9", "latin.bp:2:7: error: byte 0xe9 is not UTF-8 text"),
        ("bad.bp", b"gep()", "bad.bp:1:1: error: unknown layer 'gep'"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(CompileError) as caught:
            bp.load_blueprint(tmp_path / name)
        assert message in str(caught.value)
    for path in (tmp_path / "none.bp", tmp_path, "a\0b"):
        with pytest.raises(CompileError, match="cannot read"):
            bp.load_blueprint(path)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(blueprints)
def test_the_printed_text_parses_to_the_same(net: bp.BluePrint) -> None:
    text = str(net)
    again = bp.parse_blueprint(text)
    assert again == net
    assert str(again) == text


@settings(max_examples=100, deadline=None, derandomize=True)
@given(layers)
def test_a_printed_layer_is_an_expression(layer: bp.Layer) -> None:
    assert bp.parse_blueprint(str(layer)).root == layer


def test_printing_is_short_and_readable() -> None:
    net = bp.BluePrint(
        bp.seq(
            bp.cbr(64, 7, 2, 3, act="relu6"),
            bp.maxpool(3, 2, 1),
            bp.repeat(bp.block(64, 256, bp.RESNET_1_3_1), 3),
            bp.add2(bp.identity(), bp.seq(bp.conv(256, 3, 1, 1, bias=True), bp.bn(eps=1e-3)), name="res"),
            bp.fc(10, bias=False, name="head"),
        ),
        "net",
        (224, 224, 3),
    )
    assert str(net) == (
        "input(224, 224, 3);\n"
        "\n"
        "BluePrint net = seq(\n"
        "    cbr(64, 7, 2, 3, act=relu6),\n"
        "    maxpool(3, 2, 1),\n"
        "    repeat(block(64, 256, RESNET_1_3_1), 3),\n"
        '    add2(identity(), seq(conv(256, 3, 1, 1, bias=true), bn(eps=0.001)), name="res"),\n'
        '    fc(10, false, name="head")\n'
        ");\n"
    )
    wide = bp.add2(bp.identity(), bp.seq(*[bp.conv(64, 3, 1, 1)] * 5, name="stem"))
    assert str(wide) == (
        "add2(\n    identity(),\n    seq(\n" + "        conv(64, 3, 1, 1),\n" * 5 + '        name="stem"\n    )\n)'
    )


def mutate(text: str, edits: list[tuple[int, int, int, str]]) -> str:
    """Apply edits: delete, replace, insert, copy or move a piece."""
    for kind, at, length, piece in edits:
        at %= len(text) + 1
        length = length % 12
        cut = text[at : at + length]
        if kind == 0:
            text = text[:at] + text[at + length :]
        elif kind == 1:
            text = text[:at] + piece + text[at + length :]
        elif kind == 2:
            text = text[:at] + piece + text[at:]
        else:
            to = (at * 7 + length) % (len(text) + 1)
            text = text[:to] + cut + text[to:]
    return text


PIECES = (
    *("(", ")", ",", ";", "=", '"', "/*", "*/", "//", "\n", "{", "-", "0", "9999999", "1e9", ".", "0.1f", "true", "é"),
    *("seq(", "relu()", "relu", "input(1, 1, 1)", "repeat(", "RESNET_3_3", "BluePrint ", "auto a = ", "name=", "act="),
    *("add2(", "\t", "\r", "\0", "\u2028", "\udc80", " ", "block(", "x"),
)
edit = st.tuples(
    st.integers(0, 3), st.integers(0, 2000), st.integers(0, 11), st.sampled_from(PIECES) | st.text(max_size=3)
)


@settings(max_examples=1000, deadline=None, derandomize=True)
@given(st.sampled_from(TEXTS), st.lists(edit, min_size=1, max_size=6))
def test_mutated_texts_give_messages_never_tracebacks(text: str, edits: list[tuple[int, int, int, str]]) -> None:
    changed = mutate(text, edits)
    try:
        net = bp.parse_blueprint(changed, "net.bp")
    except CompileError as err:
        lines = changed.split("\n")
        for problem in err.problems:
            if "not shown" in problem.message:
                continue
            assert problem.message
            assert problem.location is not None
            assert 1 <= problem.location.line <= len(lines)
            assert 1 <= problem.location.column <= len(lines[problem.location.line - 1]) + 1
        str(err).encode("utf-8", "surrogatepass")
    else:
        assert bp.parse_blueprint(str(net)) == net
        bp.import_blueprint(net).verify()
