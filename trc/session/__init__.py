"""The one room that joins compiler and runtime: compile, lower, load."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trc.session.compiling import compile, lower, lower_to_plan
    from trc.session.executable import Executable, load
    from trc.session.options import CompileOptions

__all__ = ["CompileOptions", "Executable", "compile", "load", "lower", "lower_to_plan"]

_HOMES = {"CompileOptions": "options", "Executable": "executable", "load": "executable"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'trc.session' has no attribute '{name}'")
    found = globals()[name] = getattr(import_module(f"trc.session.{_HOMES.get(name, 'compiling')}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
