"""Step 7: residual blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass

from trc.dialects.arch import (
    Act,
    AddOp,
    BasicBlockOp,
    Bn2dOp,
    BottleneckOp,
    IdentityOp,
    InvertedResidualOp,
    LayerOp,
    MergedOp,
    Relu6Op,
    ReluOp,
    Shortcut,
    float_of,
)
from trc.dialects.arch.base import Number
from trc.dialects.attributes import string
from trc.passes.arch.pieces import ACTS, Activation, Conv, Norm, Piece, is_open, pieces_of
from trc.passes.arch.rewriting import input_of, layers, make, models, require_static, substitute

STEM_MOST = 8
"""How many pieces the longest stem has: three convolutions, three norms, two activations."""


@dataclass(frozen=True)
class ArchMergeBlocksPass(ModulePass):
    """Recognise bottleneck, basic and inverted-residual blocks however they were written.

    A block is merged only if it means the same: kernels, strides, paddings, channels, groups, biases, activations,
    equal parameters of all its batch norms, the shortcut's content, and no other reader of any value inside.
    """

    name = "arch-merge-blocks"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Merge in every model of the module."""
        for model in models(op):
            ops = layers(model)
            if not any(isinstance(layer, AddOp | Bn2dOp) or is_open(layer) for layer in ops):
                continue
            require_static(ops)
            merged: set[LayerOp] = set()
            for layer in ops:
                if layer not in merged:
                    merged.update(merge_at(layer))


@dataclass(frozen=True)
class Chain:
    """Layers in a row without other readers inside: what they are, where they start, which they are."""

    pieces: tuple[Piece, ...]
    start: SSAValue
    ops: tuple[LayerOp, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the layers."""
        return tuple(piece.name for piece in self.pieces)


@dataclass(frozen=True)
class Side:
    """A sum's shortcut: nothing (or an identity), or a convolution and its norm."""

    start: SSAValue
    ops: tuple[LayerOp, ...] = ()
    conv: Conv | None = None
    norm: Norm | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the layers that count."""
        return () if self.conv is None or self.norm is None else (self.conv.name, self.norm.name)

    def fits(self, stride: int, outputs: int, norm: Norm) -> bool:
        """Whether it brings the block's input to the form that its stem has, as the blocks do it."""
        if self.conv is None or self.norm is None:
            return stride == 1
        return self.conv.is_plain(1, outputs, stride) and self.norm.like(norm)

    @property
    def shortcut(self) -> Shortcut:
        """What blocks call it."""
        return Shortcut.IDENTITY if self.conv is None else Shortcut.PROJECTION


@dataclass(frozen=True)
class Stem:
    """Convolutions and activations of a stem whose norms are all like `norm` and whose activations are all `act`."""

    convs: tuple[Conv, ...]
    norm: Norm
    act: Act


@dataclass(frozen=True)
class Match:
    """A recognised block: its kind and its parameters."""

    kind: type[MergedOp]
    values: dict[str, Number]

    def replace(self, ops: Sequence[LayerOp], x: SSAValue, names: Sequence[str], like: LayerOp) -> Sequence[LayerOp]:
        """Put the block in place of its layers, the last of which gives the result; its location is that of `like`."""
        properties = self.kind.fields_from(self.values)
        properties["layer"] = string(names[0])
        properties["parts"] = ArrayAttr(map(string, names))
        new = make(self.kind, [x], properties, ops[-1])
        new.location = like.location
        substitute(ops, new)
        return ops


def chains(end: SSAValue) -> dict[int, Chain]:
    """The chains that end in a value, by their number of pieces, up to the longest that a block can have."""
    found: dict[int, Chain] = {}
    pieces: tuple[Piece, ...] = ()
    ops: tuple[LayerOp, ...] = ()
    value = end
    while len(pieces) < STEM_MOST and (value is end or value.has_one_use()):
        owner = value.owner
        here = pieces_of(owner)
        if not here:
            break
        assert isinstance(owner, LayerOp)
        pieces, ops, value = (*here, *pieces), (owner, *ops), input_of(owner)
        found[len(pieces)] = Chain(pieces, value, ops)
    return found


def stem_of(chain: Chain) -> Stem | None:
    """A chain as a stem, if it is conv, norm, act, ..., conv, norm with all norms and all activations alike."""
    pieces = chain.pieces
    convs = [piece for piece in pieces[0::3] if isinstance(piece, Conv)]
    norms = [piece for piece in pieces[1::3] if isinstance(piece, Norm)]
    acts = [piece for piece in pieces[2::3] if isinstance(piece, Activation)]
    if len(pieces) % 3 != 2 or len(convs) + len(norms) + len(acts) != len(pieces) or not acts:
        return None
    if not all(norm.like(norms[0]) for norm in norms) or any(act.act is not acts[0].act for act in acts):
        return None
    return Stem(tuple(convs), norms[0], acts[0].act)


def parameters(stem: Stem, stride: int, shortcut: Shortcut) -> dict[str, Number]:
    """The parameters that all blocks have."""
    return {
        "out_channels": stem.convs[-1].outputs,
        "stride": stride,
        "shortcut": shortcut,
        "act": stem.act,
        "momentum": float_of(stem.norm.momentum),
        "eps": float_of(stem.norm.eps),
    }


def bottleneck(stem: Stem, side: Side) -> Match | None:
    """1x1, 3x3 with the stride, 1x1."""
    if len(stem.convs) != 3:
        return None
    first, middle, last = stem.convs
    if not (first.is_plain(1) and middle.is_plain(3, first.outputs, None) and last.is_plain(1)):
        return None
    if not side.fits(middle.stride, last.outputs, stem.norm):
        return None
    values = parameters(stem, middle.stride, side.shortcut)
    return Match(BottleneckOp, {**values, "mid_channels": first.outputs})


def basic_block(stem: Stem, side: Side) -> Match | None:
    """3x3 with the stride, 3x3."""
    if len(stem.convs) != 2:
        return None
    first, last = stem.convs
    if not (first.is_plain(3, last.outputs, None) and last.is_plain(3)):
        return None
    if not side.fits(first.stride, last.outputs, stem.norm):
        return None
    return Match(BasicBlockOp, parameters(stem, first.stride, side.shortcut))


def inverted_residual(stem: Stem, shortcut: Shortcut) -> Match | None:
    """1x1 or nothing, depthwise 3x3 with the stride, 1x1."""
    if len(stem.convs) not in (2, 3):
        return None
    *expand, middle, last = stem.convs
    if not (middle.is_depthwise(3) and last.is_plain(1) and all(conv.is_plain(1) for conv in expand)):
        return None
    if shortcut is Shortcut.IDENTITY and middle.stride != 1:
        return None
    values = parameters(stem, middle.stride, shortcut)
    return Match(InvertedResidualOp, {**values, "expand_channels": expand[0].outputs if expand else None})


def merge_at(op: LayerOp) -> Sequence[LayerOp]:
    """Merge the block that ends at a layer, if there is one; returns the layers that are gone."""
    if isinstance(op, AddOp):
        gone = merge_sum(op)
        if gone:
            return gone
        # Without a block around it, each branch may still end in one that has no sum.
        return [*merge_alone(op.shortcut), *merge_alone(op.stem)]
    if isinstance(op, Bn2dOp) or is_open(op):
        use = op.result.get_user_of_unique_use()
        return () if isinstance(use, AddOp) else merge_alone(op.result)
    return ()


def merge_alone(end: SSAValue) -> Sequence[LayerOp]:
    """Merge an inverted residual without sum that ends in a value: only with relu6, MobileNetV2's own activation."""
    found = chains(end)
    for length in (8, 5):
        chain = found.get(length)
        if chain is None or len(chain.ops) == 1 or (stem := stem_of(chain)) is None or stem.act is not Act.RELU6:
            continue
        if (match := inverted_residual(stem, Shortcut.NONE)) is not None:
            return match.replace(chain.ops, chain.start, chain.names, chain.ops[0])
    return ()


def merge_sum(op: AddOp) -> Sequence[LayerOp]:
    """Merge the block whose sum this is."""
    for shortcut, end in ((op.shortcut, op.stem), (op.stem, op.shortcut)):
        if not end.has_one_use():
            continue
        found = chains(end)
        for side in sides(shortcut):
            for chain in found.values():
                if chain.start is side.start and (stem := stem_of(chain)) is not None:
                    gone = merge_pair(op, side, chain, stem)
                    if gone:
                        return gone
    return ()


def merge_pair(op: AddOp, side: Side, chain: Chain, stem: Stem) -> Sequence[LayerOp]:
    """Merge a sum of a shortcut and a stem that begin at the same value."""
    ops, names = [*side.ops, *chain.ops, op], [*side.names, *chain.names, op.layer_name]
    like = chain.ops[0] if side.conv is None else side.ops[0]
    post = op.result.get_user_of_unique_use()
    if isinstance(post, ReluOp | Relu6Op) and ACTS[type(post)] is stem.act:
        match = bottleneck(stem, side) or basic_block(stem, side)
        if match is not None:
            return match.replace([*ops, post], side.start, [*names, post.layer_name], like)
    if side.conv is None and (match := inverted_residual(stem, Shortcut.IDENTITY)) is not None:
        return match.replace(ops, side.start, names, like)
    return ()


def sides(shortcut: SSAValue) -> list[Side]:
    """What a sum's operand can be as a shortcut."""
    owner = shortcut.owner
    if isinstance(owner, IdentityOp) and shortcut.has_one_use():
        return [Side(input_of(owner), (owner,))]
    found = [Side(shortcut)]
    if shortcut.has_one_use() and (chain := chains(shortcut).get(2)) is not None:
        conv, norm = chain.pieces
        if isinstance(conv, Conv) and isinstance(norm, Norm):
            found.append(Side(chain.start, chain.ops, conv, norm))
    return found
