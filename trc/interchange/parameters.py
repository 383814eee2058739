"""Which parameters a network has, read off the arch dialect: convolutions, batch norms and fully connected layers.

Merged layers are written out here in terms of their own parameters only, apart from the passes that make them and the
descriptors that compile them, so that counting checks both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import prod

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import OpResult, SSAValue

from trc.diagnostics import CompileError
from trc.dialects.arch import (
    ActivationOp,
    AddOp,
    AvgPoolOp,
    BasicBlockOp,
    BottleneckOp,
    CbrOp,
    CbrpOp,
    ChannelPaddingOp,
    ConvOp,
    DropoutOp,
    FcOp,
    FlattenOp,
    GapFcOp,
    GapOp,
    IdentityOp,
    InvertedResidualOp,
    LayerOp,
    MaxPoolOp,
    ModelOp,
    NormOp,
    OutputOp,
    Shortcut,
    SoftmaxCeOp,
    bool_of,
    int_of,
    shape_of,
)
from trc.dialects.arch.base import SameShapeOp

_BARE = (
    ActivationOp,
    AddOp,
    AvgPoolOp,
    ChannelPaddingOp,
    DropoutOp,
    FlattenOp,
    GapOp,
    IdentityOp,
    MaxPoolOp,
    SoftmaxCeOp,
)
"""Layers without parameters."""


class LeafKind(StrEnum):
    """What kind of layer holds parameters."""

    CONV = "convolution"
    NORM = "batch norm"
    FC = "fully connected layer"


@dataclass(frozen=True)
class Leaf:
    """A layer with parameters, by the name that its tensors begin with.

    `weight` is the shape of its weight as users see it: KRSC, [out, 1, 1, in], or [1, 1, 1, channels] of a batch norm.
    Its inputs (columns of a fully connected layer, channels of the others) run over `map`: height, width and channels
    of the map that it reads, flattened or not; (1, 1, channels) where they are plain channels.
    """

    name: str
    kind: LeafKind
    weight: tuple[int, int, int, int]
    bias: bool
    map: tuple[int, int, int]

    @property
    def tensors(self) -> tuple[str, ...]:
        """The parts of its tensors' names, statistics included."""
        if self.kind is LeafKind.NORM:
            return ("weight", "bias", "running_mean", "running_var")
        return ("weight", "bias") if self.bias else ("weight",)

    @property
    def parameters(self) -> int:
        """How many numbers are trained."""
        biases = self.weight[3] if self.kind is LeafKind.NORM else self.weight[0]
        return prod(self.weight) + (biases if self.bias else 0)


def model_of(module: ModuleOp) -> ModelOp:
    """The module's only `arch.model`; CompileError where it has none or several."""
    models = [op for op in module.ops if isinstance(op, ModelOp)]
    if not models:
        raise CompileError("the module has no arch.model")
    if len(models) > 1:
        raise CompileError.at(models[1], "the module has more than one arch.model")
    return models[0]


def leaves(module: ModuleOp) -> list[Leaf]:
    """The layers with parameters, in order, those inside merged ones too.

    Needs names and shapes (after `arch-deduce-shapes`). CompileError names a layer of which this module knows nothing.
    """
    found: list[Leaf] = []
    for op in model_of(module).body.block.ops:
        if isinstance(op, (OutputOp, *_BARE)):
            continue
        if not isinstance(op, LayerOp):
            raise CompileError.at(op, f"{op.name} is no layer: run arch-expand-tree first")
        found += _leaves_of(op)
    return found


def parameter_count(module: ModuleOp) -> int:
    """How many numbers the network trains: weights and biases, not the running statistics.

    Needs shapes. Channels that mixed precision adds to the input count as they stand in the module.
    """
    return sum(leaf.parameters for leaf in leaves(module))


def _leaves_of(op: LayerOp) -> Iterator[Leaf]:
    _, h, w, c = shape_of(op.operands[0])
    if h is None or w is None or c is None:
        raise CompileError.at(op, "its shapes are unknown: run arch-deduce-shapes first", op.layer_name)
    if not isinstance(op, CbrOp | CbrpOp | GapFcOp | BottleneckOp | BasicBlockOp | InvertedResidualOp):
        yield _plain(op, c)
        return
    plan = _merged(op, c)
    names = op.leaf_names if op.parts is not None else ()
    for place, leaf in plan:
        if place >= len(names):
            raise CompileError.at(op, "it does not name its parts: run arch-plan first", op.layer_name)
        yield Leaf(names[place], *leaf)


_Rest = tuple[LeafKind, tuple[int, int, int, int], bool, tuple[int, int, int]]


def _plain(op: LayerOp, channels: int) -> Leaf:
    seen = _flattened(op.operands[0])
    # A layer over channels sees a map through them only where they are a flattened one.
    flat = seen if prod(seen) == channels else (1, 1, channels)
    if isinstance(op, ConvOp):
        groups = int_of(op.groups) if op.depthwise is None else channels
        out = channels if op.out_channels is None else int_of(op.out_channels)
        return Leaf(op.layer_name, *_conv(out, int_of(op.kernel), channels // groups, bool_of(op.bias))[:3], flat)
    if isinstance(op, NormOp):
        return Leaf(op.layer_name, *_norm(channels)[:3], flat)
    if isinstance(op, FcOp):
        return Leaf(op.layer_name, *_fc(int_of(op.out_features), seen, bool_of(op.bias)))
    raise CompileError.at(op, f"{op.name} is no layer whose parameters are known here", op.layer_name)


def _flattened(x: SSAValue) -> tuple[int, int, int]:
    """The map in whose order a value's numbers lie: seen through flattening and layers that keep the shape."""
    while isinstance(x, OpResult) and isinstance(x.op, FlattenOp | SameShapeOp | AddOp):
        x = x.op.operands[0]
    _, h, w, c = shape_of(x)
    # The sizes of what a value was made from are known where its own are.
    return h or 1, w or 1, c or 1


def _conv(out: int, kernel: int, channels: int, bias: bool = False) -> _Rest:
    return LeafKind.CONV, (out, kernel, kernel, channels), bias, (1, 1, channels)


def _norm(channels: int) -> _Rest:
    return LeafKind.NORM, (1, 1, 1, channels), True, (1, 1, channels)


def _fc(out: int, seen: tuple[int, int, int], bias: bool) -> _Rest:
    return LeafKind.FC, (out, 1, 1, prod(seen)), bias, seen


_Placed = list[tuple[int, _Rest]]
"""Layers with parameters, with their places among the parts of a merged layer."""


def _merged(op: CbrOp | CbrpOp | GapFcOp | BottleneckOp | BasicBlockOp | InvertedResidualOp, channels: int) -> _Placed:
    if isinstance(op, GapFcOp):
        return [(1, _fc(int_of(op.out_features), (1, 1, channels), bool_of(op.bias)))]
    out = int_of(op.out_channels)
    if isinstance(op, CbrOp | CbrpOp):
        conv = _conv(out, int_of(op.kernel), channels // int_of(op.groups), bool_of(op.bias))
        return [(0, conv), (1, _norm(out))]
    placed: _Placed = []
    place = 0

    def pair(conv: _Rest, act: bool) -> None:
        nonlocal place
        placed.extend([(place, conv), (place + 1, _norm(conv[1][0]))])
        place += 3 if act else 2

    if op.shortcut.data is Shortcut.PROJECTION:
        pair(_conv(out, 1, channels), act=False)
    if isinstance(op, BottleneckOp):
        mid = int_of(op.mid_channels)
        pair(_conv(mid, 1, channels), act=True)
        pair(_conv(mid, 3, mid), act=True)
        pair(_conv(out, 1, mid), act=False)
    elif isinstance(op, BasicBlockOp):
        pair(_conv(out, 3, channels), act=True)
        pair(_conv(out, 3, out), act=False)
    else:
        wide = channels if op.expand_channels is None else int_of(op.expand_channels)
        if op.expand_channels is not None:
            pair(_conv(wide, 1, channels), act=True)
        pair(_conv(wide, 3, 1), act=True)
        pair(_conv(out, 1, wide), act=False)
    return placed
