"""Which results may lie where an operand of their node lies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trc.dialects.memplan import TensorOp
from trc.passes.plan.access import NodeAccess, TensorTable
from trc_runtime.schema.kinds import KINDS, Access, Kind
from trc_runtime.schema.regions import channel_alignment


def alias_pairs(access: NodeAccess, table: TensorTable) -> Iterator[tuple[int, int]]:
    """(t, u): the node may write u where it reads t, byte for byte. Both transient, one layout in all columns."""
    kind = KINDS.get(access.op.kind_)
    if kind is None or not kind.may_alias:
        return
    for out, source in kind.may_alias:
        u, t = _operand(access, kind, out, table), _operand(access, kind, source, table)
        if u is None or t is None or not (table.transient[u] and table.transient[t]):
            continue
        if _same_layout(table.tensors[t], table.tensors[u]):
            yield t, u


def _operand(access: NodeAccess, kind: Kind, name: str, table: TensorTable) -> int | None:
    """The tensor that stands for an operand; None for a range or one left out."""
    for group in Access:
        refs = access.op.operand_refs(group)
        for operand, ref in zip(kind.group(group), refs, strict=False):
            if operand.name == name and isinstance(ref, str):
                return table.index[ref]
    return None


def _same_layout(a: TensorOp, b: TensorOp) -> bool:
    """Whether element i of both lies at the same byte: one type, and one shape or no padding."""
    if a.dtype_ is not b.dtype_ or a.slot_ != b.slot_:
        return False
    if a.shapes_ == b.shapes_:
        return channel_alignment(a.region_, a.dtype_) == channel_alignment(b.region_, b.dtype_)
    return all(
        (s is None) == (r is None) and (s is None or r is None or (_dense(a, s) and _dense(b, r)))
        for s, r in zip(a.shapes_, b.shapes_, strict=True)
    )


def _dense(tensor: TensorOp, shape: Sequence[int]) -> bool:
    return shape[-1] % channel_alignment(tensor.region_, tensor.dtype_) == 0
