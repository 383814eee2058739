"""Turns a BluePrint into IR: one `arch.model` with structure ops, each with the place where its layer was written."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

from xdsl.dialects.builtin import FileLineColLoc, IntAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from trc.blueprint.layer import Layer
from trc.blueprint.network import BluePrint, as_blueprint, checked_input
from trc.blueprint.parameters import Signature
from trc.blueprint.signatures import SIGNATURES
from trc.diagnostics import Location
from trc.dialects.arch import (
    Add2Op,
    AvgPoolOp,
    BlockOp,
    BnOp,
    CbrOp,
    CbrpOp,
    ChannelPaddingOp,
    ConvOp,
    DropoutOp,
    EluOp,
    FcOp,
    FlattenOp,
    GapFcOp,
    GapOp,
    HardswishOp,
    IdentityOp,
    LeakyReluOp,
    MaxPoolOp,
    ModelOp,
    OutputOp,
    Relu6Op,
    ReluOp,
    RepeatOp,
    SeqOp,
    SigmoidOp,
    SiluOp,
    TanhOp,
    YieldOp,
    tensor_of,
)

Lowering = Callable[[SSAValue, Layer], Operation]
"""Makes the op of a leaf layer from its input; the op has one result."""


def _plain(op: Callable[..., Operation]) -> Lowering:
    """The lowering of a layer whose op takes the layer's arguments in the same order."""
    return lambda x, layer: op(x, *layer.args, layer=layer.name)


def _conv(x: SSAValue, layer: Layer) -> Operation:
    out, kernel, stride, padding, bias = cast(Any, layer.args)
    return ConvOp(x, out, kernel, stride, padding, bias=bias, layer=layer.name)


def _conv_dw(x: SSAValue, layer: Layer) -> Operation:
    kernel, stride, padding, bias = cast(Any, layer.args)
    return ConvOp(x, None, kernel, stride, padding, bias=bias, depthwise=True, layer=layer.name)


def _group_conv(x: SSAValue, layer: Layer) -> Operation:
    out, groups, kernel, stride, padding, bias = cast(Any, layer.args)
    return ConvOp(x, out, kernel, stride, padding, groups=groups, bias=bias, layer=layer.name)


def _flatten(x: SSAValue, layer: Layer) -> Operation:
    return FlattenOp(x, layer=layer.name)


def _cbr(x: SSAValue, layer: Layer) -> Operation:
    out, kernel, stride, padding, momentum, eps, act = cast(Any, layer.args)
    return CbrOp(x, out, kernel, stride, padding, act=act, momentum=momentum, eps=eps, layer=layer.name)


def _cbrp(x: SSAValue, layer: Layer) -> Operation:
    out, kernel, stride, padding, pk, ps, pp, momentum, eps, act = cast(Any, layer.args)
    return CbrpOp(
        x,
        *(out, kernel, stride, padding),
        act=act,
        momentum=momentum,
        eps=eps,
        pool_kernel=pk,
        pool_stride=ps,
        pool_padding=pp,
        layer=layer.name,
    )


def _block(x: SSAValue, layer: Layer) -> Operation:
    mid, out, style = cast("tuple[int | None, int, str]", layer.args)
    return BlockOp(x, style, mid, out, name=layer.name)


_LOWERINGS: dict[str, Lowering] = {
    "conv": _conv,
    "conv_dw": _conv_dw,
    "group_conv": _group_conv,
    "bn": _plain(BnOp),
    "relu": _plain(ReluOp),
    "tanh_act": _plain(TanhOp),
    "silu": _plain(SiluOp),
    "relu6": _plain(Relu6Op),
    "leaky_relu": _plain(LeakyReluOp),
    "hardswish": _plain(HardswishOp),
    "elu": _plain(EluOp),
    "sigmoid": _plain(SigmoidOp),
    "dropout": _plain(DropoutOp),
    "flatten": _flatten,
    "channel_padding": _plain(ChannelPaddingOp),
    "maxpool": _plain(MaxPoolOp),
    "avgpool": _plain(AvgPoolOp),
    "gap": _plain(GapOp),
    "fc": _plain(FcOp),
    "identity": _plain(IdentityOp),
    "cbr": _cbr,
    "cbrp": _cbrp,
    "gap_fc": _plain(GapFcOp),
    "block": _block,
}


def register(signature: Signature, lowering: Lowering) -> None:
    """Add a layer of your own: it can then be made with `layer_of(kind, ...)` and written in .bp texts.

    Raises:
        ValueError: a layer of that name exists.
    """
    if signature.kind in SIGNATURES:
        raise ValueError(f"a layer called '{signature.kind}' exists already")
    SIGNATURES[signature.kind] = signature
    _LOWERINGS[signature.kind] = lowering


@lru_cache(64)
def _file(name: str) -> StringAttr:
    return StringAttr(name)


@lru_cache(4096)
def _number(value: int) -> IntAttr:
    return IntAttr(value)


def _place(op: Operation, source: Location | None) -> None:
    if source is not None:
        op.location = FileLineColLoc(_file(source.file), _number(source.line), _number(source.column))


class _Importer:
    """Appends the ops of layers to blocks. Recursion follows the nesting, which `make` bounds."""

    def append(self, block: Block, x: SSAValue, layer: Layer) -> SSAValue:
        """Add a layer's op at the end of a block; its result."""
        op = self._op(x, layer)
        _place(op, layer.source)
        block.add_op(op)
        return op.results[0]

    def sequence(self, block: Block, x: SSAValue, layer: Layer) -> SSAValue:
        """Add a layer, or the layers of an unnamed seq one by one; the last result."""
        if layer.kind == "seq" and layer.name is None:
            for child in layer.children:
                x = self.append(block, x, child)
            return x
        return self.append(block, x, layer)

    def _op(self, x: SSAValue, layer: Layer) -> Operation:
        lowering = _LOWERINGS.get(layer.kind)
        if lowering is not None:
            return lowering(x, layer)
        match layer.kind:
            case "seq":
                return SeqOp(x, self._seq_region(x.type, layer), name=layer.name)
            case "repeat":
                times = cast(int, layer.args[0])
                return RepeatOp(x, self._region(x.type, layer.children[0], layer), times, name=layer.name)
            case "add2":
                shortcut, stem = (self._region(x.type, child, layer) for child in layer.children)
                return Add2Op(x, shortcut, stem, name=layer.name)
            case _:
                raise ValueError(f"{layer.kind}(...) cannot stand here")

    def _seq_region(self, type_: Attribute, layer: Layer) -> Region:
        block = Block(arg_types=[type_])
        x: SSAValue = block.args[0]
        for child in layer.children:
            x = self.append(block, x, child)
        return _closed(block, x, layer)

    def _region(self, type_: Attribute, body: Layer, owner: Layer) -> Region:
        """A region with the layers of `body`; an unnamed seq needs no op of its own there."""
        block = Block(arg_types=[type_])
        return _closed(block, self.sequence(block, block.args[0], body), owner)


def _closed(block: Block, result: SSAValue, owner: Layer) -> Region:
    end = YieldOp(result)
    _place(end, owner.source)
    block.add_op(end)
    return Region(block)


def import_blueprint(model: BluePrint | Layer, input: tuple[int, int, int] | None = None) -> ModuleOp:
    """A module with one `arch.model` that says what the BluePrint says.

    An unnamed seq outside, or as the whole of a branch or a repeat's body, becomes the ops in the block itself; every
    other container is one structure op.

    Args:
        model: the network.
        input: height, width and channels of one image; it takes the place of the BluePrint's own. With neither, all
            sizes are unknown in the IR.

    Raises:
        TypeError, ValueError: `model` or `input` is not usable.
    """
    blueprint = as_blueprint(model)
    size = blueprint.input if input is None else checked_input(input)
    entry = Block(arg_types=[tensor_of((None, *(size or (None, None, None))))])
    entry.args[0].name_hint = "input"
    result = _Importer().sequence(entry, entry.args[0], blueprint.root)
    output = OutputOp(result)
    _place(output, blueprint.source)
    entry.add_op(output)
    op = ModelOp(blueprint.name, Region(entry))
    _place(op, blueprint.source)
    module = ModuleOp([op])
    _place(module, blueprint.source)
    return module
