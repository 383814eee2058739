"""The open registry of descriptors, by the name of the layer's op."""

from __future__ import annotations

from collections.abc import Iterable

from trc.diagnostics import CompileError, Diagnostic, diagnostic_at
from trc.dialects.arch.base import LayerOp
from trc.layers.descriptor import Descriptor

_DESCRIPTORS: dict[str, Descriptor] = {}


def register(op: type[LayerOp], descriptor: Descriptor) -> None:
    """Make the compiler know a layer. ValueError when the op has another descriptor already."""
    if _DESCRIPTORS.setdefault(op.name, descriptor) is not descriptor:
        raise ValueError(f"'{op.name}' has a descriptor already")


def find(op: LayerOp) -> Descriptor | None:
    """The descriptor of a layer, or None."""
    return _DESCRIPTORS.get(op.name)


def known_ops() -> tuple[str, ...]:
    """The names of the ops that have a descriptor, sorted."""
    return tuple(sorted(_DESCRIPTORS))


def require(ops: Iterable[LayerOp]) -> list[Descriptor]:
    """The descriptors of layers, in order; CompileError names every layer that has none."""
    found: list[Descriptor] = []
    problems: list[Diagnostic] = []
    for op in ops:
        descriptor = find(op)
        if descriptor is None:
            message = f"trc cannot compile {op.name} yet: no descriptor is registered for it in trc.layers"
            problems.append(diagnostic_at(op, message, op.layer_name))
        else:
            found.append(descriptor)
    if problems:
        raise CompileError(problems)
    return found
