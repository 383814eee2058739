"""Compiles C with the system's compiler, once a machine, compiler and source; loads the convolutions' native.c.

The library lies in `$TRC_CACHE_DIR`, else `$XDG_CACHE_HOME/trc`, else `~/.cache/trc`; where none of them can be
written, a warning says so and it lies in a directory that lives as long as the process. The compiler is `$CC`, else
`cc`.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from importlib.resources import files
from pathlib import Path

from trc_runtime.schema.caches import cache_folder, warn_once

FLAGS = ("-O3", "-march=native", "-fno-tree-pre", "-std=gnu11", "-fPIC", "-shared")
"""GCC's elimination of partial redundancies costs the inner loops 15 %: it moves loads to where registers lack."""

SECONDS = 120
"""How long the compiler may take."""


_NOT_KEPT = "compiled C code is not kept and will be compiled again in the next process"


class BuildError(Exception):
    """There is no compiled library; the message says why, in one line."""


@cache
def library() -> ctypes.CDLL:
    """The compiled library. BuildError where it cannot be had (the same one each time)."""
    path = _failed_or_path()
    if isinstance(path, BuildError):
        raise path
    try:
        return _declared(ctypes.CDLL(str(path)))
    except OSError as err:
        raise BuildError(f"{path} cannot be loaded: {err}") from None


@cache
def _failed_or_path() -> Path | BuildError:
    try:
        return _path()
    except BuildError as err:
        return err


def compiler() -> list[str]:
    """The command of the compiler. BuildError if there is none."""
    command = shlex.split(os.environ.get("CC", "")) or ["cc"]
    found = shutil.which(command[0])
    if found is None:
        raise BuildError(f"there is no C compiler '{command[0]}'")
    return [found, *command[1:]]


def _path() -> Path:
    return build((files("trc_runtime.cpu.conv") / "native.c").read_bytes(), "conv")


def build(source: bytes, stem: str, extra: tuple[str, ...] = ()) -> Path:
    """The path of a source that is compiled, if need be, with FLAGS and `extra`. BuildError where that cannot be."""
    command, flags = compiler(), (*FLAGS, *extra)
    key = hashlib.sha256()
    for part in (source, _output([*command, "--version"]), _machine(), repr((command, flags)).encode()):
        key.update(len(part).to_bytes(8, "little") + part)
    name = f"{stem}-{key.hexdigest()[:24]}.so"
    for wanted in _directories():
        directory = wanted or _own_directory()
        try:
            directory.mkdir(parents=True, exist_ok=True)
            path = directory / name
            if not path.is_file():
                _compile([*command, *flags], source, path)
            return path
        except OSError as err:  # cannot be written: the next one
            if wanted:
                warn_once(
                    f"{_NOT_KEPT}, {directory} cannot be used ({err.strerror or err}): set TRC_CACHE_DIR to a folder "
                    "that can be written"
                )
    raise BuildError("there is no directory to write the compiled library to")


def _directories() -> list[Path | None]:
    """Where to look and write, in order; None is a directory of this process."""
    given = os.environ.get("TRC_CACHE_DIR")
    if given:
        return [Path(given), None]
    folder = cache_folder()
    if folder is None:
        warn_once(f"{_NOT_KEPT}, there is no home folder: set TRC_CACHE_DIR to a folder")
    return [None] if folder is None else [folder, None]


@cache
def _own_directory() -> Path:
    path = tempfile.mkdtemp(prefix="trc-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return Path(path)


def _compile(command: list[str], source: bytes, path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        text, built = Path(scratch) / "native.c", Path(scratch) / "native.so"
        text.write_bytes(source)
        _output([*command, "-o", str(built), str(text)])
        built.replace(path)  # at once: another process may be building the same


def _output(command: list[str]) -> bytes:
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=SECONDS, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as err:
        raise BuildError(f"'{shlex.join(command)}' does not run: {err}") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise BuildError(f"'{shlex.join(command)}' failed: {lines[0] if lines else done.returncode}")
    return done.stdout


def _machine() -> bytes:
    """What `-march=native` depends on: a cache directory may be shared between machines."""
    about = platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            # the first processor's model and features
            about += "".join(
                sorted({x for x in lines if x.startswith(("model name", "flags", "Features", "CPU part"))})
            )
    except OSError:
        about += platform.processor()
    return about.encode()


def _declared(found: ctypes.CDLL) -> ctypes.CDLL:
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    found.trc_wide.argtypes = []
    found.trc_wide.restype = number
    signatures = {
        "trc_fill": (pointer, pointer, pointer, pointer, pointer, number, number),
        "trc_pack": (pointer, pointer, number, number, number, number, pointer),
        "trc_correlate": (*[pointer] * 4, *[number] * 4, pointer, number, pointer),
        "trc_sums": (pointer, number, number, number, pointer),
        "trc_outer": (pointer, pointer, pointer, *[number] * 4, pointer, number),
        "trc_depthwise": (*[pointer] * 4, *[number] * 5, pointer, number, pointer),
        "trc_depthwise_outer": (pointer, pointer, pointer, *[number] * 7, pointer),
    }
    for name, arguments in signatures.items():
        function = getattr(found, name)
        function.argtypes = list(arguments)
        function.restype = None
    return found
