"""How lit runs the text tests: `lit -sv tests/lit`, from a virtual environment, the tree installed or not.

A test names the tools as a user does (`trc-opt`, `trc-compile`, `trc-run`); here these are small scripts that run the
modules of this tree. Two words save typing: ROUNDTRIP (own text) and GENERIC (generic text), each printed, read
back, printed again and given to filecheck.
"""

# ruff: noqa: F821
# pyright: basic, reportUndefinedVariable=false

import glob
import os
import shutil
import sys

import lit.formats

SOURCE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(SOURCE))
EXEC = os.path.join(ROOT, "build", "lit")
BIN = os.path.join(EXEC, "bin")
TOOLS = {"trc-opt": "trc_opt", "trc-compile": "trc_compile", "trc-run": "trc_run"}


def write_script(name: str, command: str) -> None:
    """Put a script into the folder of tools, at once, so that a test that runs meanwhile finds it whole."""
    path = os.path.join(BIN, name)
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as out:
        out.write(f'#!/bin/sh\nexec {command} "$@"\n')
    os.chmod(temporary, 0o755)
    os.replace(temporary, path)


def find_mlir_opt() -> str | None:
    """The mlir-opt on PATH, or Debian's (package mlir-22-tools)."""
    found = shutil.which("mlir-opt")
    return found or next(iter(sorted(glob.glob("/usr/lib/llvm-*/bin/mlir-opt"), reverse=True)), None)


config.name = "trc"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".bp"]
config.excludes = ["Inputs"]
config.test_source_root = SOURCE
config.test_exec_root = EXEC

os.makedirs(BIN, exist_ok=True)
for tool, module in TOOLS.items():
    write_script(tool, f"'{sys.executable}' -m trc.tools.{module}")

config.environment["PATH"] = os.pathsep.join([BIN, os.path.dirname(sys.executable), os.environ.get("PATH", "")])
config.environment["PYTHONPATH"] = os.pathsep.join([ROOT, os.path.join(ROOT, "runtime")])
# A deprecated name of xDSL is to fail here, not in a user's hands. (filecheck itself must not: it is not ours.)
config.environment["PYTHONWARNINGS"] = "error::DeprecationWarning:trc"
config.environment["TMPDIR"] = EXEC

config.substitutions.append(("ROUNDTRIP", "trc-opt %s | trc-opt | filecheck %s"))
config.substitutions.append(("GENERIC", "trc-opt %s --print-op-generic | trc-opt | filecheck %s"))

if mlir_opt := find_mlir_opt():
    config.available_features.add("mlir-opt")
    write_script("mlir-opt", f"'{mlir_opt}'")
    config.substitutions.append(
        (
            "THROUGH_MLIR",
            "trc-opt %s --print-op-generic | mlir-opt --allow-unregistered-dialect | trc-opt | filecheck %s",
        )
    )
