"""Which function binds the nodes of a kind: an open registry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trc_runtime.cpu.bind import BoundNode

Run = Callable[[], None]
"""One node, ready to run: all its arrays are bound."""

Bind = Callable[["BoundNode"], Run]
"""Makes a node ready: takes its views, computes what is constant, returns the function to replay."""

_BINDERS: dict[str, Bind] = {}


def kernel(*kinds: str) -> Callable[[Bind], Bind]:
    """Register the decorated function as the CPU kernel of these kinds.

    ValueError where a kind has a kernel already.
    """

    def register(bind: Bind) -> Bind:
        for kind in kinds:
            if _BINDERS.setdefault(kind, bind) is not bind:
                raise ValueError(f"kind '{kind}' has a CPU kernel already")
        return bind

    return register


def lookup(kind: str) -> Bind | None:
    """The kernel of a kind, or None."""
    return _BINDERS.get(kind)


def known_kinds() -> Sequence[str]:
    """All kinds that have a kernel, in order of registration."""
    return tuple(_BINDERS)
