"""Step 2: which batch norms are of vectors and which of maps."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass

from trc.dialects.arch import (
    AddOp,
    Bn1dOp,
    Bn2dOp,
    ChannelPaddingOp,
    FcOp,
    FlattenOp,
    GapFcOp,
    GapOp,
    LayerOp,
    NormOp,
    SoftmaxCeOp,
    shape_of,
)
from trc.passes.arch.rewriting import input_of, layers, make, models, substitute

VECTORS = (FcOp, FlattenOp, GapOp, GapFcOp)
"""Layers that give a vector, whatever they take."""


@dataclass(frozen=True)
class ArchRenameBnPass(ModulePass):
    """Make every batch norm a bn1d or a bn2d, by the layer that gave its input its form.

    Activations, dropout, identities, channel padding, sums and other batch norms keep the form and are looked through.
    After a fully connected layer, a flatten or a global pool it is a vector, else a map; the network's input is a map
    unless its type says 1x1.
    """

    name = "arch-rename-bn"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Rename in every model of the module."""
        for model in models(op):
            vectors: set[SSAValue] = set()
            if shape_of(model.input)[1:3] == (1, 1):
                vectors.add(model.input)
            for layer in layers(model):
                is_vector = isinstance(layer, VECTORS) or (keeps_form(layer) and input_of(layer) in vectors)
                if isinstance(layer, NormOp):
                    kind = Bn1dOp if is_vector else Bn2dOp
                    if type(layer) is not kind:
                        new = make(kind, layer.operands, layer.properties, layer)
                        substitute([layer], new)
                        layer = new
                if is_vector:
                    vectors.add(layer.result)


def keeps_form(layer: LayerOp) -> bool:
    """Whether the result is a vector exactly when the (first) input is one."""
    return layer.POSITIONWISE or isinstance(layer, NormOp | ChannelPaddingOp | AddOp | SoftmaxCeOp)
