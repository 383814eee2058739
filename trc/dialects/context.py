"""The context in which trc reads IR: builtin, arch, memplan and graph."""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.builtin import Builtin
from xdsl.ir import Dialect


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
    context = Context()
    context.load_dialect(Builtin)
    context.register_dialect("arch", _arch)
    context.register_dialect("memplan", _memplan)
    context.register_dialect("graph", _graph)
    return context
