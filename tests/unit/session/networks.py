"""Random networks that are right by construction: chains, nested residuals, blocks, mixed pools, groups, odd sizes."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

import trc

SHAPE_KEEPING = ("relu", "relu6", "tanh_act", "silu", "leaky_relu", "hardswish", "elu", "sigmoid")
STYLES = (trc.RESNET_3_3, trc.RESNET_1_3_1, trc.RESNET_3_3_DS, trc.RESNET_1_3_1_DS, trc.MB_E1_K3, trc.MB_E6_K3)
SPELLINGS = ("conv", "conv bias", "conv bn", "conv bn act", "conv bias bn", "cbr", "dw", "group", "cbrp")
CLASSES = 7


@dataclass(frozen=True)
class Case:
    """A network, its input and a batch size."""

    net: trc.BluePrint
    batch: int
    seed: int


@dataclass
class Cursor:
    """The shape of what has been generated so far."""

    h: int
    w: int
    c: int

    @property
    def side(self) -> int:
        return min(self.h, self.w)

    def window(self, k: int, s: int, p: int) -> None:
        self.h, self.w = ((i + 2 * p - k) // s + 1 for i in (self.h, self.w))


@st.composite
def convolution(draw: st.DrawFn, at: Cursor, keep: bool = False) -> list[trc.Layer]:
    """A convolution that fits, perhaps with norm and activation, in one of its spellings; `keep` keeps the shape."""
    k = draw(st.sampled_from([1, 3] if keep else [1, 2, 3, 5]))
    p = k // 2 if keep else draw(st.integers(0, k // 2))
    s = 1 if keep else draw(st.integers(1, 3))
    if at.side + 2 * p < k:
        k, p = 1, 0
    out = at.c if keep else draw(st.sampled_from([1, 3, 4, 6, 8, 12]))
    spelling = draw(st.sampled_from(SPELLINGS))
    at_c = at.c
    at.window(k, s, p)
    if spelling == "dw":
        return [trc.conv_dw(k, s, p), trc.bn(), trc.relu6()]
    at.c = out
    if spelling == "group":
        groups = draw(st.sampled_from([g for g in (1, 2, 3) if at_c % g == 0 and out % g == 0]))
        return [trc.group_conv(out, groups, k, s, p), *draw(st.sampled_from([[], [trc.bn()], [trc.relu()]]))]
    if spelling == "cbr":
        return [trc.cbr(out, k, s, p, momentum=0.2)]
    if spelling == "cbrp" and not keep and at.side >= 2:
        at.window(2, 2, 0)
        return [trc.cbrp(out, k, s, p, 2, 2, 0)]
    layers = [trc.conv(out, k, s, p, bias="bias" in spelling)]
    if spelling in ("conv bn", "conv bn act", "conv bias bn"):
        layers.append(trc.bn(momentum=0.3, eps=1e-3))
    if spelling == "conv bn act":
        layers.append(draw(st.sampled_from([trc.relu(), trc.relu6(), trc.silu(), trc.relu()])))
    return layers


@st.composite
def piece(draw: st.DrawFn, at: Cursor, depth: int) -> list[trc.Layer]:
    """One to four layers that fit."""
    kinds = ["conv", "conv", "act", "pool", "bn", "dropout", "identity", "block"]
    kind = draw(st.sampled_from([*kinds, "residual", "residual"] if depth else kinds))
    if kind == "act":
        return [getattr(trc, draw(st.sampled_from(SHAPE_KEEPING)))()]
    if kind == "bn":
        return [trc.bn()]
    if kind == "dropout":
        return [trc.dropout(draw(st.sampled_from([0.1, 0.5])))]
    if kind == "identity":
        return [trc.identity()]
    if kind == "pool" and at.side >= 2:
        make = draw(st.sampled_from([trc.maxpool, trc.avgpool]))
        k = draw(st.integers(2, 3))
        p = draw(st.integers(0, 1))
        if at.side + 2 * p < k:
            k, p = 2, 0
        s = draw(st.integers(1, 2))
        at.window(k, s, p)
        return [make(k, s, p)]
    if kind == "block":
        return draw(block(at))
    if kind == "residual":
        return draw(residual(at, depth - 1))
    return draw(convolution(at))


@st.composite
def block(draw: st.DrawFn, at: Cursor) -> list[trc.Layer]:
    """A named block, written with block(...)."""
    style = draw(st.sampled_from(STYLES))
    out = draw(st.sampled_from([at.c, 4, 8]))
    if style in (trc.RESNET_3_3_DS, trc.RESNET_1_3_1_DS):
        at.h, at.w = ((i - 1) // 2 + 1 for i in (at.h, at.w))
    at.c = out
    if style in (trc.RESNET_1_3_1, trc.RESNET_1_3_1_DS):
        return [trc.block(draw(st.sampled_from([2, 4])), out, style)]
    return [trc.block(out, style)]


@st.composite
def residual(draw: st.DrawFn, at: Cursor, depth: int) -> list[trc.Layer]:
    """A sum: the stem keeps the shape or ends in a projection that the shortcut shares; perhaps nested."""
    inner = Cursor(at.h, at.w, at.c)
    stem = draw(convolution(inner, keep=True))
    if depth and draw(st.booleans()):
        stem += draw(residual(inner, depth - 1))
    if draw(st.booleans()):
        out = draw(st.sampled_from([3, 8]))
        stem.append(trc.conv(out, 1))
        shortcut = trc.seq(trc.conv(out, 1), trc.bn())
        at.c = out
    else:
        stem += draw(convolution(inner, keep=True)) if inner.c == at.c else [trc.conv(at.c, 1)]
        shortcut = trc.identity()
    return [trc.add2(shortcut, trc.seq(*stem)), *draw(st.sampled_from([[], [trc.relu()]]))]


@st.composite
def networks(draw: st.DrawFn) -> Case:
    """A whole network: a body of up to six pieces, and one of several heads."""
    at = Cursor(draw(st.integers(1, 9)), draw(st.integers(1, 9)), draw(st.sampled_from([1, 2, 3, 4])))
    size = at.h, at.w, at.c
    layers: list[trc.Layer] = []
    for _ in range(draw(st.integers(0, 6))):
        layers += draw(piece(at, 2))
    head = draw(st.sampled_from(["gap fc", "gap_fc", "fc", "flatten fc", "mlp", "fc act fc"]))
    if head == "gap fc":
        layers += [trc.gap(), trc.fc(CLASSES)]
    elif head == "gap_fc":
        layers.append(trc.gap_fc(CLASSES, True))
    elif head == "mlp":
        layers += [trc.fc(9), trc.bn(), trc.relu(), trc.fc(CLASSES, draw(st.booleans()))]
    elif head == "fc act fc":
        for out in draw(st.lists(st.sampled_from([5, 8, 11]), min_size=1, max_size=3)):
            act = draw(st.sampled_from([trc.relu, trc.relu6, trc.relu, trc.tanh_act]))
            layers += [trc.fc(out, draw(st.booleans())), *([trc.identity()] if draw(st.booleans()) else []), act()]
        layers.append(trc.fc(CLASSES))
    else:
        layers += [*([trc.flatten()] if head == "flatten fc" else []), trc.fc(CLASSES)]
    batch = draw(st.integers(2, 5))
    return Case(trc.BluePrint(trc.seq(*layers), name="net", input=size), batch, draw(st.integers(0, 2**32 - 1)))
