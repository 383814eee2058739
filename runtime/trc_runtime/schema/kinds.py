"""Kinds of operation: what a node of a computation graph may be.

A kind is declared beside the layer descriptor that uses it, in an open registry. `graph.compute` and
`graph.range` check their nodes against the record; runtimes look kernels up by its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from trc_runtime.schema.graphs import StreamKind


class Access(StrEnum):
    """How a node touches an operand."""

    READ = "reads"
    UPDATE = "updates"  # reads, then writes
    WRITE = "writes"  # every byte that others may read later

    @property
    def reads(self) -> bool:
        """Whether the old contents are seen."""
        return self is not Access.WRITE

    @property
    def writes(self) -> bool:
        """Whether the contents change."""
        return self is not Access.READ


@dataclass(frozen=True)
class Operand:
    """One operand of a kind. In a node, operands stand in the order of the record, grouped by access.

    An optional operand may be left out, together with all later ones of the same access.
    """

    name: str
    access: Access
    optional: bool = False
    is_range: bool = False


ParamType = type[int] | type[float] | type[bool] | type[str]


@dataclass(frozen=True)
class Kind:
    """A kind of operation.

    `scalars` are device scalars (or tables) that a node reads, by role; `params` are constants of the network
    such as a window or a slope. What changes between steps is never a parameter. `may_alias` lists (output,
    input) pairs that may occupy the same bytes because the kernel reads each element before it writes it.
    """

    name: str
    operands: tuple[Operand, ...]
    scalars: tuple[str, ...] = ()
    params: tuple[tuple[str, ParamType], ...] = ()
    may_alias: tuple[tuple[str, str], ...] = ()
    workspace: bool = False
    stream: StreamKind | None = None
    on_range: bool = False

    def group(self, access: Access) -> tuple[Operand, ...]:
        """The operands of one access, in order."""
        return tuple(o for o in self.operands if o.access is access)

    def arity_problem(self, access: Access, count: int) -> str | None:
        """Why `count` operands do not fit the group, or None."""
        group = self.group(access)
        least = sum(not o.optional for o in group)
        if least <= count <= len(group):
            return None
        wanted = str(len(group)) if least == len(group) else f"{least} to {len(group)}"
        names = ", ".join(o.name for o in group) or "nothing"
        return f"kind {self.name} {access.value} {wanted} operands ({names}), not {count}"


class KindRegistry:
    """The known kinds by name."""

    def __init__(self) -> None:
        self._kinds: dict[str, Kind] = {}

    def register(self, kind: Kind) -> Kind:
        """Add a kind and return it. ValueError for a name that exists with another meaning."""
        known = self._kinds.setdefault(kind.name, kind)
        if known != kind:
            raise ValueError(f"kind '{kind.name}' is registered twice with different records")
        return kind

    def get(self, name: str) -> Kind | None:
        """The kind of that name, or None."""
        return self._kinds.get(name)

    def names(self) -> Sequence[str]:
        """All names, in order of registration."""
        return tuple(self._kinds)

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._kinds.values())


KINDS = KindRegistry()
"""The registry that everything in this process shares."""


def reads(*names: str) -> tuple[Operand, ...]:
    """Operands that a node reads."""
    return tuple(Operand(n, Access.READ) for n in names)


def updates(*names: str) -> tuple[Operand, ...]:
    """Operands that a node reads and writes."""
    return tuple(Operand(n, Access.UPDATE) for n in names)


def writes(*names: str) -> tuple[Operand, ...]:
    """Operands that a node writes."""
    return tuple(Operand(n, Access.WRITE) for n in names)
