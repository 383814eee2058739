"""Step 9: convolution, batch norm, activation."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.passes import ModulePass

from trc.dialects.arch import CbrOp, ConvOp
from trc.dialects.attributes import string
from trc.passes.arch.rewriting import input_of, layers, make, models, substitute
from trc.passes.arch.triples import triple_at


@dataclass(frozen=True)
class ArchMergeTriplePass(ModulePass):
    """Merge convolution, batch norm of maps, and relu or relu6 to cbr, where nothing else reads a value inside."""

    name = "arch-merge-triple"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Merge in every model of the module."""
        for model in models(op):
            for conv in layers(model):
                if not isinstance(conv, ConvOp) or (triple := triple_at(conv)) is None:
                    continue
                properties = {
                    **triple.properties,
                    "layer": string(triple.names[0]),
                    "parts": ArrayAttr(map(string, triple.names)),
                }
                new = make(CbrOp, [input_of(conv)], properties, triple.ops[-1])
                new.location = conv.location
                substitute(triple.ops, new)
