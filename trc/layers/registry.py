"""The open registry of descriptors, by the name of the layer's op, and of what merged layers stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from trc.diagnostics import CompileError, Diagnostic, diagnostic_at
from trc.dialects.arch.base import UNIT, LayerOp
from trc.layers.descriptor import Descriptor

WHOLE_INPUT = -1
"""As an input of a part: the merged layer's own input."""


@dataclass(frozen=True)
class Part:
    """A layer that a merged one stands for.

    `op` holds its parameters and lies in no module; `inputs` are the places of other parts, or WHOLE_INPUT. The last
    part gives the merged layer's result.
    """

    op: LayerOp
    name: str
    inputs: tuple[int, ...]


Expansion = Callable[[LayerOp], Sequence[Part]]
"""Makes the parts of a merged layer, in the order of their names."""

_DESCRIPTORS: dict[str, Descriptor] = {}
_EXPANSIONS: dict[str, Expansion] = {}


def register(op: type[LayerOp], descriptor: Descriptor) -> None:
    """Make the compiler know a layer. ValueError when the op has another descriptor already."""
    if op.name in _EXPANSIONS or _DESCRIPTORS.setdefault(op.name, descriptor) is not descriptor:
        raise ValueError(f"'{op.name}' has a descriptor already")


def register_merged(op: type[LayerOp], expansion: Expansion) -> None:
    """Make the compiler know a merged layer. ValueError when the op is known otherwise already."""
    if op.name in _DESCRIPTORS or _EXPANSIONS.setdefault(op.name, expansion) is not expansion:
        raise ValueError(f"'{op.name}' has a descriptor already")


def find(op: LayerOp) -> Descriptor | None:
    """The descriptor of a layer, or None; a merged layer has none, its parts do."""
    return _DESCRIPTORS.get(op.name)


def known_ops() -> tuple[str, ...]:
    """The names of the ops that can be compiled, sorted."""
    return tuple(sorted({*_DESCRIPTORS, *_EXPANSIONS}))


def parts_of(op: LayerOp) -> Sequence[Part]:
    """What a layer stands for: itself, or the parts of a merged one.

    CompileError where a merged layer does not know the names of its parts.
    """
    expansion = _EXPANSIONS.get(op.name)
    if expansion is None:
        return (Part(op, op.layer_name, tuple(WHOLE_INPUT - n for n in range(len(op.operands)))),)
    parts = expansion(op)
    if op.parts is None or len(op.parts) != len(parts):
        given = "none" if op.parts is None else str(len(op.parts))
        raise CompileError.at(
            op, f"{op.name} stands for {len(parts)} layers here, but names {given}: run arch-plan first", op.layer_name
        )
    if op.first is not None and sum(WHOLE_INPUT in part.inputs for part in parts) == 1:
        parts[0].op.properties["first"] = UNIT
    return parts


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
