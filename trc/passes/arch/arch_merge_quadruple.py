"""Step 8: convolution, batch norm, activation, maximum pool."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.passes import ModulePass

from trc.dialects.arch import CbrOp, CbrpOp, ConvOp, LayerOp, MaxPoolOp
from trc.dialects.attributes import string
from trc.passes.arch.rewriting import input_of, layers, make, models, substitute
from trc.passes.arch.triples import triple_at


@dataclass(frozen=True)
class ArchMergeQuadruplePass(ModulePass):
    """Merge convolution, batch norm, relu or relu6, and maximum pool to cbrp, with `pool` only.

    Nothing else may read a value inside. Convolution-norm-activation layers that are merged already count too.
    """

    name = "arch-merge-quadruple"

    pool: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Merge in every model of the module."""
        if not self.pool:
            return
        for model in models(op):
            for layer in layers(model):
                if layer.parent is not None and isinstance(layer, ConvOp | CbrOp):
                    merge(layer)


def merge(first: ConvOp | CbrOp) -> None:
    """Merge the four layers that begin with a convolution, if they do."""
    ops: list[LayerOp] = [first]
    if isinstance(first, ConvOp):
        triple = triple_at(first)
        if triple is None:
            return
        ops, properties = list(triple.ops), triple.properties
        names = triple.names
    else:
        properties = {field.name: first.properties[field.name] for field in CbrOp.FIELDS}
        names = first.leaf_names
    pool = ops[-1].result.get_user_of_unique_use()
    if not isinstance(pool, MaxPoolOp):
        return
    names = (*names, pool.layer_name)
    properties = {
        **properties,
        "pool_kernel": pool.kernel,
        "pool_stride": pool.stride,
        "pool_padding": pool.padding,
        "layer": string(names[0]),
        "parts": ArrayAttr(map(string, names)),
    }
    new = make(CbrpOp, [input_of(first)], properties, pool)
    new.location = first.location
    substitute([*ops, pool], new)
