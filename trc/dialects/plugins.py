"""Layers from other packages: their operations in the arch dialect, and how such packages are found.

A package names a module under the entry point group `trc.layers`; importing that module registers what it brings: the
operation here, the factory with `trc.blueprint.register`, the descriptor with `trc.layers.registry.register`.
`examples/custom_layer` is a complete one. The packages are imported when a name comes up that trc does not know, not
before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from trc.diagnostics import CompileError
from trc.dialects.arch import Arch
from trc.dialects.arch.base import LayerOp

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "trc.layers"

_PREFIX = "arch."
_ops: dict[str, type[LayerOp]] = {}
_loaded: dict[tuple[str, str], str | None] = {}
"""Entry points (name, value) that have been imported, with what went wrong."""
_searched: list[str] = []
"""The search path of the last look: the same path holds the same packages."""


def register_op(op: type[LayerOp]) -> None:
    """Add an operation `arch.<name>` for a layer. ValueError for another prefix or a name that exists."""
    if not op.name.startswith(_PREFIX):
        raise ValueError(f"the operation of a layer is called '{_PREFIX}...', not '{op.name}'")
    if any(known.name == op.name for known in Arch.operations) or _ops.setdefault(op.name, op) is not op:
        raise ValueError(f"there is an operation '{op.name}' already")


def registered_ops() -> tuple[type[LayerOp], ...]:
    """The operations that other packages have registered so far."""
    return tuple(_ops.values())


def find_op(name: str) -> type[LayerOp] | None:
    """The operation of that name from another package, which may be imported for it.

    CompileError where there is none and a package is broken that may have it.
    """
    if name.startswith(_PREFIX):
        load_unless(lambda: name in _ops)
    return _ops.get(name)


def load_unless(found: Callable[[], bool]) -> None:
    """Import all packages that bring layers unless what is looked for is there.

    CompileError where it is not there then and a package is broken that may have it.
    """
    if not found():
        try:
            load_plugins()
        except CompileError:
            if not found():
                raise


def load_plugins() -> None:
    """Import all packages that bring layers, each once. CompileError names every one that fails, each time."""
    if _searched != sys.path:
        from importlib.metadata import entry_points

        for point in entry_points(group=GROUP):
            if (point.name, point.value) not in _loaded:
                _loaded[point.name, point.value] = _load(point)
        _searched[:] = sys.path
    failures = [text for text in _loaded.values() if text is not None]
    if failures:
        raise CompileError("; ".join(failures))


def _load(point: EntryPoint) -> str | None:
    try:
        point.load()
    except Exception as err:  # it is code of others
        package = f" of package {point.dist.name}" if point.dist is not None else ""
        detail = f"{type(err).__name__}: {err}".strip()
        return f"the plug-in '{point.name}'{package} ({point.value}) cannot be loaded: {detail}"
    return None
