"""The context in which trc reads IR: builtin, arch, memplan and graph, and the layers of other packages."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.context import Context
from xdsl.dialects.builtin import Builtin
from xdsl.ir import Dialect, Operation


class _Context(Context):
    """Looks for an operation that it does not know among the layers of other packages."""

    def get_optional_op(self, name: str, *, dialect_stack: Sequence[str] = ()) -> type[Operation] | None:
        found = super().get_optional_op(name, dialect_stack=dialect_stack)
        if found is not None:
            return found
        from trc.dialects.plugins import find_op

        return find_op(name)


def _arch() -> Dialect:
    from trc.dialects.arch import Arch

    return Arch


def _memplan() -> Dialect:
    from trc.dialects.memplan import MemPlan

    return MemPlan


def _graph() -> Dialect:
    from trc.dialects.graph import Graph

    return Graph


def make_context() -> Context:
    """A context of its own. The dialects are imported when the first of their operations is met."""
    context = _Context()
    context.load_dialect(Builtin)
    context.register_dialect("arch", _arch)
    context.register_dialect("memplan", _memplan)
    context.register_dialect("graph", _graph)
    return context
