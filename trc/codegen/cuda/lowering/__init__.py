"""How kinds become launches of the kernels in kernels.cu.

`lower(plan, node, column)` gives the launches of one node and the scratch memory they need; `owns` tells the nodes that
are lowered here from those that become cuDNN calls, copies, fills or collectives.
"""

from __future__ import annotations

from trc.codegen.cuda.lowering import (
    dense,
    depthwise,
    dropout,
    elementwise,
    ema,
    images,
    loss,
    matmul,
    norm,
    optimizer,
    pool,
    scalars,
)
from trc.codegen.cuda.lowering.dense import add_bias, is_plain_copy
from trc.codegen.cuda.lowering.launch import Arg, D, F, I, Instance, Launch, Lowered, N, P, Parameter, S
from trc.codegen.cuda.lowering.view import Matrix, NodeView, lower, lowered_kinds, lowering, owns

FAMILIES = (dense, depthwise, dropout, elementwise, ema, images, loss, matmul, norm, optimizer, pool, scalars)
"""The files; importing one registers its lowerings."""

__all__ = [
    "FAMILIES",
    "Arg",
    "D",
    "F",
    "I",
    "Instance",
    "Launch",
    "Lowered",
    "Matrix",
    "N",
    "NodeView",
    "P",
    "Parameter",
    "S",
    "add_bias",
    "is_plain_copy",
    "lower",
    "lowered_kinds",
    "lowering",
    "owns",
]
