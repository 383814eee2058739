"""What both forms of batch norm's passes take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trc_runtime.cpu.bind import Array, BoundNode
from trc_runtime.cpu.half import BF16, F16, compute_type, is_half, load

ACTIVATIONS = ("none", "relu", "relu6")
"""What a normalisation may apply, by the name of the parameter `act`."""

_NEGLIGIBLE = {F16: 2.0**-25, BF16: 2.0**-134}
"""The largest number that rounds to 0 in a half type."""

_SIX = {F16: 6 - 2.0**-9, BF16: 6 - 2.0**-6}
"""The smallest number that rounds to 6 in a half type (a tie, and 6 is even)."""


def activation(node: BoundNode) -> str:
    """The parameter `act`; "none" where the node has none. ValueError for an unknown one."""
    act = node.text("act") if "act" in node.params else "none"
    if act not in ACTIVATIONS:
        raise node.problem(f"knows the activations {', '.join(ACTIVATIONS)}, not '{act}'")
    return act


class Row:
    """One number a channel, in the compute type: the operand itself, or scratch that `load` fills from half storage."""

    def __init__(self, node: BoundNode, name: str) -> None:
        stored = node.flat(name)
        self._stored = stored if is_half(stored.dtype) else None
        self.values: Array = node.scratch(stored.shape, compute_type(stored.dtype)) if is_half(stored.dtype) else stored

    def load(self) -> None:
        """Convert again."""
        if self._stored is not None:
            load(self._stored, self.values)


@dataclass(frozen=True)
class Gate:
    """Where an activation whose input is computed again lets a gradient through.

    That is where x scale + shift, rounded to the storage type as readers have rounded it, lies above 0 (and for relu6
    below 6), or is NaN. What rounds to 0 or 6 is told by comparing with the last number that does: `low` and `high`
    (None for relu) do not let through.
    """

    scale: Row
    shift: Row
    low: float
    high: float | None

    def load(self) -> None:
        """Fetch scale and shift."""
        self.scale.load()
        self.shift.load()


def gate_of(node: BoundNode) -> Gate | None:
    """The gate of a node with dy, x, scale and shift, or None without an activation."""
    act = activation(node)
    if act == "none":
        return None
    storage = node["x"].dtype
    high = _SIX.get(storage, 6.0) if act == "relu6" else None
    return Gate(Row(node, "scale"), Row(node, "shift"), _NEGLIGIBLE.get(storage, 0.0), high)


def vectors(node: BoundNode, channels: int, count: int) -> list[Array]:
    """Scratch for numbers of channels in float64."""
    return [node.scratch((channels,), np.float64) for _ in range(count)]
