"""The number of classes of a network that does not say it: the channels of its last layer."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from trc.diagnostics import CompileError
from trc.dialects.arch import ModelOp
from trc.dialects.arch.base import shape_of
from trc.dialects.context import make_context
from trc.passes.arch.arch_deduce_shapes import ArchDeduceShapesPass
from trc.passes.arch.arch_expand_tree import ArchExpandTreePass


def output_channels(module: ModuleOp) -> int:
    """Channels of the model's result. Works on a copy; raises CompileError for a network that does not fit."""
    copy = module.clone()
    ctx = make_context()
    ArchExpandTreePass(fuse=False).apply(ctx, copy)
    ArchDeduceShapesPass().apply(ctx, copy)
    for op in copy.ops:
        if isinstance(op, ModelOp):
            last = op.body.block.last_op
            channels = shape_of(last.operands[0])[3] if last is not None and last.operands else None
            if channels is not None:
                return channels
    raise CompileError("the number of classes cannot be seen from the network: pass num_classes")
