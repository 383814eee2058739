"""Which function binds the nodes of a kind: an open registry.

Other packages add kernels for kinds of their own: under the entry point group `trc_runtime.kernels` they name a module
whose import registers them. It is imported when a kind comes up that has no kernel, not before.
"""

from __future__ import annotations

import sys
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
    """The kernel of a kind, if need be from another package, or None.

    PluginError where there is none and a package is broken that may have it.
    """
    if kind not in _BINDERS:
        try:
            load_plugins()
        except PluginError:
            if kind not in _BINDERS:
                raise
    return _BINDERS.get(kind)


GROUP = "trc_runtime.kernels"


class PluginError(ValueError):
    """A package that brings kernels cannot be imported."""


_loaded: dict[tuple[str, str], str | None] = {}
"""Entry points (name, value) that have been imported, with what went wrong."""
_searched: list[str] = []
"""The search path of the last look: the same path holds the same packages."""


def load_plugins() -> None:
    """Import all packages that bring kernels, each once. PluginError names every one that fails, each time."""
    if _searched != sys.path:
        from importlib.metadata import entry_points

        for point in entry_points(group=GROUP):
            if (point.name, point.value) not in _loaded:
                problem: str | None = None
                try:
                    point.load()
                except Exception as err:  # it is code of others
                    package = f" of package {point.dist.name}" if point.dist is not None else ""
                    detail = f"{type(err).__name__}: {err}".strip()
                    problem = f"the plug-in '{point.name}'{package} ({point.value}) cannot be loaded: {detail}"
                _loaded[point.name, point.value] = problem
        _searched[:] = sys.path
    failures = [text for text in _loaded.values() if text is not None]
    if failures:
        raise PluginError("; ".join(failures))


def known_kinds() -> Sequence[str]:
    """All kinds that have a kernel, in order of registration."""
    return tuple(_BINDERS)
