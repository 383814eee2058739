"""Step 10: global pool with fully connected layer; the first layer."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.passes import ModulePass

from trc.dialects.arch import FcOp, GapFcOp, GapOp
from trc.dialects.arch.base import UNIT
from trc.dialects.attributes import string
from trc.passes.arch.rewriting import input_of, layers, make, models, substitute


@dataclass(frozen=True)
class ArchMergeBinaryAndMarkPass(ModulePass):
    """Merge a global pool with the fully connected layer that alone reads it, and mark the first layer.

    Without `fuse` nothing is merged, only marked.
    """

    name = "arch-merge-binary-and-mark"

    fuse: bool = True

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Merge and mark in every model of the module."""
        for model in models(op):
            if self.fuse:
                for layer in layers(model):
                    if isinstance(layer, GapOp):
                        merge(layer)
            for n, layer in enumerate(layers(model)):
                if n == 0:
                    layer.first = UNIT
                elif layer.first is not None:
                    del layer.properties["first"]


def merge(gap: GapOp) -> None:
    """Merge a global pool with its only reader, if that is a fully connected layer."""
    fc = gap.result.get_user_of_unique_use()
    if not isinstance(fc, FcOp):
        return
    names = (gap.layer_name, fc.layer_name)
    properties = {field.name: fc.properties[field.name] for field in FcOp.FIELDS}
    properties |= {"layer": string(names[0]), "parts": ArrayAttr(map(string, names))}
    new = make(GapFcOp, [input_of(gap)], properties, fc)
    new.location = gap.location
    substitute([gap, fc], new)
