"""Phase 5: which computation each variant uses."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from trc.diagnostics import CompileError
from trc.dialects.graph import ComputationOp, VariantOp
from trc.passes.plan.common import absent, append, required
from trc_runtime.schema.graphs import Variant


@dataclass(frozen=True)
class GraphShareOrClonePass(ModulePass):
    """Write six `graph.variant`.

    The graphs know no shapes and the kernel forms are chosen once for all columns, so all training variants
    share `train` and all validation variants `infer`; nothing needs a clone.
    """

    name = "graph-share-or-clone"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Append the variants to the module."""
        absent(op, VariantOp, self.name)
        computations = {c.name_: c for c in required(op, ComputationOp, "graph.computation", "graph-build-computation")}
        for variant in Variant:
            used = computations.get("train" if variant.is_train else "infer")
            if used is None:
                raise CompileError("the module lacks a computation: run graph-build-computation")
            append(op, VariantOp(variant, used.name_, location=used.location))
