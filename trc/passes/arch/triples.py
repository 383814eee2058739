"""Convolution, batch norm and activation in a row."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Attribute

from trc.dialects.arch import Bn2dOp, CbrOp, ConvOp, LayerOp, Relu6Op, ReluOp
from trc.dialects.arch.enums import ActAttr
from trc.passes.arch.pieces import ACTS


@dataclass(frozen=True)
class Triple:
    """The three layers, the parameters of the merged one, the three names."""

    ops: tuple[LayerOp, ...]
    properties: dict[str, Attribute]
    names: tuple[str, ...]


def triple_at(conv: ConvOp) -> Triple | None:
    """The triple that begins with a convolution: each of the first two is read by the next alone."""
    norm = conv.result.get_user_of_unique_use()
    if not isinstance(norm, Bn2dOp) or conv.out_channels is None:
        return None
    act = norm.result.get_user_of_unique_use()
    if not isinstance(act, ReluOp | Relu6Op):
        return None
    found = {**conv.properties, **norm.properties, "act": ActAttr(ACTS[type(act)])}
    properties = {field.name: found[field.name] for field in CbrOp.FIELDS}
    return Triple((conv, norm, act), properties, (conv.layer_name, norm.layer_name, act.layer_name))
