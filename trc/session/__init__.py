"""The one room that joins compiler and runtime: compile, lower, load."""

from trc.session.compiling import compile, lower, lower_to_plan
from trc.session.executable import Executable, load
from trc.session.options import CompileOptions

__all__ = ["CompileOptions", "Executable", "compile", "load", "lower", "lower_to_plan"]
