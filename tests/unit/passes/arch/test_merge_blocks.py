"""Blocks merge when they mean the same, and only then."""

from __future__ import annotations

import pytest

from tests.unit.passes.arch.helpers import names_of, network, transform

MERGE = "arch-deduce-shapes,arch-merge-blocks"
BOTTLENECK = [
    "%s = arch.conv %x {out_channels = 16, kernel = 1, stride = 2}",
    "%t = arch.bn2d %s",
    "%0 = arch.conv %x {out_channels = 4, kernel = 1}",
    "%1 = arch.bn2d %0",
    "%2 = arch.relu %1",
    "%3 = arch.conv %2 {out_channels = 4, kernel = 3, stride = 2, padding = 1}",
    "%4 = arch.bn2d %3",
    "%5 = arch.relu %4",
    "%6 = arch.conv %5 {out_channels = 16, kernel = 1}",
    "%7 = arch.bn2d %6",
    "%8 = arch.add %t, %7",
    "%9 = arch.relu %8",
]
BASIC = [
    "%i = arch.identity %x",
    "%0 = arch.conv %x {out_channels = 8, kernel = 3, padding = 1}",
    "%1 = arch.bn2d %0",
    "%2 = arch.relu %1",
    "%3 = arch.conv %2 {out_channels = 8, kernel = 3, padding = 1}",
    "%4 = arch.bn2d %3",
    "%5 = arch.add %i, %4",
    "%6 = arch.relu %5",
]
INVERTED = [
    "%0 = arch.conv %x {out_channels = 48, kernel = 1}",
    "%1 = arch.bn2d %0",
    "%2 = arch.relu6 %1",
    "%3 = arch.conv %2 {kernel = 3, padding = 1, depthwise}",
    "%4 = arch.bn2d %3",
    "%5 = arch.relu6 %4",
    "%6 = arch.conv %5 {out_channels = 8, kernel = 1}",
    "%7 = arch.bn2d %6",
    "%8 = arch.add %x, %7",
]


def edited(lines: list[str], changes: list[tuple[int, str, str]]) -> list[str]:
    """The lines with words replaced; an empty word appends a line after the place instead."""
    lines = list(lines)
    for at, old, new in changes:
        assert old in lines[at], (lines[at], old)
        lines[at] = lines[at].replace(old, new)
    return lines


def test_the_three_blocks_as_they_should_be() -> None:
    assert names_of(transform(network(BOTTLENECK), MERGE)) == ["bottleneck"]
    assert names_of(transform(network(BASIC), MERGE)) == ["basic_block"]
    assert names_of(transform(network(INVERTED), MERGE)) == ["inverted_residual"]


BOTTLENECK_MISSES = {
    "first kernel": [(2, "kernel = 1", "kernel = 3, padding = 1")],
    "middle kernel": [(5, "kernel = 3, stride = 2, padding = 1", "kernel = 5, stride = 2, padding = 2")],
    "last kernel": [(8, "kernel = 1", "kernel = 3, padding = 1")],
    "stride on the first": [(2, "kernel = 1", "kernel = 1, stride = 2"), (5, ", stride = 2", "")],
    "stride on the last": [(5, ", stride = 2", ""), (8, "kernel = 1", "kernel = 1, stride = 2")],
    "other middle channels": [(5, "out_channels = 4", "out_channels = 8")],
    "grouped": [(5, "padding = 1", "padding = 1, groups = 2")],
    "bias": [(8, "kernel = 1", "kernel = 1, bias = true")],
    "bias on the shortcut": [(0, "kernel = 1", "kernel = 1, bias = true")],
    "grouped shortcut": [(0, "kernel = 1", "kernel = 1, groups = 2")],
    "kernel of the shortcut": [(0, "kernel = 1, stride = 2", "kernel = 3, stride = 2, padding = 1")],
    "activation inside": [(4, "arch.relu", "arch.silu")],
    "one other activation": [(4, "arch.relu", "arch.relu6")],
    "activation at the end": [(11, "arch.relu", "arch.tanh")],
    "other activation at the end": [(11, "arch.relu", "arch.relu6")],
    "no activation at the end": [(11, "arch.relu %8", "arch.gap %8")],
    "eps": [(6, "%3", "%3 {eps = 0.001}")],
    "momentum of the shortcut": [(1, "%s", "%s {momentum = 0.2}")],
    "norm of vectors": [(9, "bn2d", "bn1d")],
    "pool in the stem": [(6, "arch.bn2d %3", "arch.max_pool %3 {kernel = 1, stride = 1}")],
}


@pytest.mark.parametrize("changes", BOTTLENECK_MISSES.values(), ids=BOTTLENECK_MISSES)
def test_what_is_nearly_a_bottleneck_stays(changes: list[tuple[int, str, str]]) -> None:
    lines = edited(BOTTLENECK, changes)
    before = names_of(transform(network(lines), "arch-deduce-shapes"))
    assert names_of(transform(network(lines), MERGE)) == before


BASIC_MISSES = {
    "kernel": [(4, "kernel = 3, padding = 1", "kernel = 1")],
    "padding": [(1, "padding = 1", "padding = 2"), (4, "padding = 1", "padding = 0")],
    "middle channels": [(1, "out_channels = 8", "out_channels = 16")],
    "depthwise": [(1, "padding = 1", "padding = 1, groups = 8")],
    "shortcut that works": [(0, "arch.identity", "arch.relu")],
    "stem that begins elsewhere": [(0, "arch.identity %x", "arch.tanh %x"), (1, "%x", "%i")],
    "norm": [(5, "%3", "%3 {momentum = 0.01}")],
    "activation": [(3, "arch.relu", "arch.elu")],
}


@pytest.mark.parametrize(("name", "changes"), BASIC_MISSES.items(), ids=BASIC_MISSES)
def test_what_is_nearly_a_basic_block_stays(name: str, changes: list[tuple[int, str, str]]) -> None:
    lines = edited(BASIC, changes)
    found = names_of(transform(network(lines), MERGE))
    if name == "stem that begins elsewhere":
        # Both branches begin at the tanh, so this is a block after it.
        assert found == ["tanh", "basic_block"]
    else:
        assert found == names_of(transform(network(lines), "arch-deduce-shapes"))


INVERTED_MISSES = {
    "middle mixes channels": [(3, "kernel = 3, padding = 1, depthwise", "out_channels = 48, kernel = 3, padding = 1")],
    "two channels a group": [
        (3, "kernel = 3, padding = 1, depthwise", "out_channels = 48, kernel = 3, padding = 1, groups = 24")
    ],
    "kernel of 5": [(3, "kernel = 3, padding = 1", "kernel = 5, padding = 2")],
    "bias": [(3, "depthwise", "bias = true, depthwise")],
    "last bias": [(6, "kernel = 1", "kernel = 1, bias = true")],
    "activations differ": [(5, "arch.relu6", "arch.relu")],
    "no relu6": [(2, "arch.relu6", "arch.hardswish"), (5, "arch.relu6", "arch.hardswish")],
    "last kernel": [(6, "kernel = 1", "kernel = 3, padding = 1")],
    "norm": [(7, "%6", "%6 {eps = 0.01}")],
}


@pytest.mark.parametrize("changes", INVERTED_MISSES.values(), ids=INVERTED_MISSES)
def test_what_is_nearly_an_inverted_residual_stays(changes: list[tuple[int, str, str]]) -> None:
    lines = edited(INVERTED, changes)
    assert names_of(transform(network(lines), MERGE)) == names_of(transform(network(lines), "arch-deduce-shapes"))


@pytest.mark.parametrize("at", [0, 1, 2, 3, 4, 5, 6, 7])
def test_another_reader_inside_keeps_the_layers(at: int) -> None:
    lines = [*INVERTED, f"%9 = arch.gap %{at}", "%10 = arch.fc %9 {out_features = 8}"]
    lines += ["%11 = arch.gap %8", "%12 = arch.add %11, %10"]
    found = names_of(transform(network(lines), MERGE))
    assert not (found[0] == "inverted_residual" and found[1] == "gap")
    assert found.count("add") == 2


def test_relu_makes_an_inverted_residual_only_around_a_sum() -> None:
    with_relu = [line.replace("relu6", "relu") for line in INVERTED]
    assert names_of(transform(network(with_relu), MERGE)) == ["inverted_residual"]
    assert "inverted_residual" not in names_of(transform(network(with_relu[:-1]), MERGE))
    assert names_of(transform(network(INVERTED[:-1]), MERGE)) == ["inverted_residual"]


def test_a_ratio_of_one_written_out_is_a_widening_convolution() -> None:
    lines = [line.replace("48", "8") for line in INVERTED]
    text = str(transform(network(lines), MERGE))
    assert "{expand_channels = 8, out_channels = 8, shortcut = identity}" in text


def test_single_channel_bottleneck_is_no_inverted_residual() -> None:
    lines = [line.replace("out_channels = 4", "out_channels = 1") for line in BOTTLENECK]
    assert names_of(transform(network(lines), MERGE)) == ["bottleneck"]
