"""kernels.cu to device code: NVRTC, one program, and a cache on disk.

A cubin is found again by its source, the options, the architecture and the compiler's version. The cache is
`$TRC_CACHE`, else `$XDG_CACHE_HOME/trc`, else `~/.cache/trc`; a damaged entry counts as a miss and is written anew.
Where there is no such folder, or it cannot be used, a warning says so and everything else goes on.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trc_runtime.cuda import _cuda
from trc_runtime.cuda.context import MINIMUM_ARCHITECTURE
from trc_runtime.cuda.errors import CompileProblem, MissingExtra
from trc_runtime.schema import caches
from trc_runtime.schema.caches import warn_once
from trc_runtime.schema.files import write_atomically

NAME = "kernels.cu"
OPTIONS = ("--std=c++17", "--ptxas-options=-v")
"""Options of every compilation; the log then says what each kernel uses."""

HEADER = "cuda_fp16.h"
_DIGEST = 32
_NOT_KEPT = "compiled kernels are not kept and will be compiled again in the next process"


@dataclass(frozen=True)
class Cubin:
    """Device code of a source. `log` is empty where it came from the cache."""

    code: bytes
    architecture: str
    hit: bool
    seconds: float
    log: str = ""


@dataclass(frozen=True)
class Usage:
    """What a kernel needs of a multiprocessor, from the assembler's log; bytes but for the registers."""

    registers: int
    stack: int
    spill_stores: int
    spill_loads: int


def cache_folder() -> Path | None:
    """Where cubins are kept; None where there is no place for them."""
    if chosen := os.environ.get("TRC_CACHE"):
        return Path(chosen)
    return caches.cache_folder()


def check_architecture(architecture: str) -> None:
    """CompileProblem for an architecture that NVRTC makes no code for, or that the kernels cannot do with."""
    supported = [a for a in _cuda.nvrtc_architectures() if int(a.removeprefix("sm_")) >= MINIMUM_ARCHITECTURE]
    if architecture not in supported:
        version = ".".join(map(str, _cuda.nvrtc_version()))
        raise CompileProblem(
            f"there is no code for the architecture {architecture}: with NVRTC {version} trc supports "
            f"{', '.join(supported)}"
        )


def include_folders() -> list[Path]:
    """Folders that hold CUDA's headers: those of the wheels, then those of an installed toolkit."""
    found: list[Path] = []
    spec = importlib.util.find_spec("nvidia")
    for base in (spec.submodule_search_locations or []) if spec else []:
        found += [Path(base) / "cu13" / "include", Path(base) / "cuda_runtime" / "include"]
    found += [Path(os.environ[v]) / "include" for v in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(v)]
    found.append(Path("/usr/local/cuda/include"))
    usable = [p for p in dict.fromkeys(found) if (p / HEADER).is_file()]
    if not usable:
        raise MissingExtra("cuda", f"CUDA's headers ({HEADER})", f"looked in {', '.join(map(str, found))}")
    return usable[:1]


def cubin_key(source: str, architecture: str, options: Sequence[str], version: tuple[int, int]) -> str:
    """The name of a cache entry."""
    parts = [source, architecture, "\0".join(options), f"nvrtc {version[0]}.{version[1]}"]
    return hashlib.sha256("\0\0".join(parts).encode()).hexdigest()


def compile_cubin(
    source: str,
    architecture: str,
    *,
    options: Sequence[str] = OPTIONS,
    cache: Path | None = None,
    users: Mapping[str, Sequence[str]] | None = None,
) -> Cubin:
    """Device code of a source for an architecture such as "sm_90", from the cache or from NVRTC.

    `cache` is the folder to use (`cache_folder()` by default). `users` says which layers use a kernel, for the message
    of CompileProblem, which names layer, kernel and line.
    """
    begin = time.perf_counter()
    folder = cache_folder() if cache is None else cache
    file = None
    if folder is None:
        warn_once(f"{_NOT_KEPT}, there is no home folder: set TRC_CACHE to a folder")
    else:
        file = folder / "cubin" / f"{cubin_key(source, architecture, options, _cuda.nvrtc_version())}.cubin"
        if (code := _read(file)) is not None:
            return Cubin(code, architecture, True, time.perf_counter() - begin)
    flags = [f"--gpu-architecture={architecture}", *options, *(f"-I{p}" for p in include_folders())]
    try:
        code, log = _cuda.nvrtc_compile(source, NAME, flags)
    except CompileProblem as err:
        raise CompileProblem(explain(source, str(err), users or {})) from None
    if folder is not None and file is not None:
        _write(folder, file, code)
    return Cubin(code, architecture, False, time.perf_counter() - begin, log)


def _read(file: Path) -> bytes | None:
    try:
        raw = file.read_bytes() if file.is_file() else b""  # reading a pipe would wait for ever
    except OSError:
        return None
    digest, code = raw[:_DIGEST], raw[_DIGEST:]
    return code if code and hashlib.sha256(code).digest() == digest else None


def _write(folder: Path, file: Path, code: bytes) -> None:
    """A cache that cannot be written costs time, not correctness: a warning says so, once a process."""
    try:
        if file.exists() and not file.is_file():
            raise OSError(0, f"{file.name} is not a file")
        write_atomically(file, hashlib.sha256(code).digest() + code)
    except OSError as err:
        warn_once(
            f"{_NOT_KEPT}, {folder / 'cubin'} cannot be used ({err.strerror or err}): set TRC_CACHE to a folder that "
            "can be written"
        )


# ---------------------------------------------------------------- logs

_ERROR = re.compile(rf"{re.escape(NAME)}\((\d+)\): (?:catastrophic )?error: *(.*)")
_KERNEL = re.compile(r"__global__\s+(?:void\s+)?(?:__launch_bounds__\s*\([^)]*\)\s*)?(?:void\s+)?(\w+)\s*\(")
"""The head of a kernel, which may stand in several lines."""

_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")


def explain(source: str, log: str, users: Mapping[str, Sequence[str]]) -> str:
    """NVRTC's errors with the kernel and the layers they belong to, the first ones in full."""
    lines = source.splitlines()
    kernels = [(source.count("\n", 0, m.start()) + 1, m[1]) for m in _KERNEL.finditer(source)]
    found: list[str] = []
    for match in _ERROR.finditer(log):
        number, text = int(match[1]), match[2].strip()
        kernel = _kernel_of(lines, kernels, number) or _instantiated(log[match.end() :], lines, kernels)
        layers = list(users.get(kernel or "", ()))
        where = f"kernel {kernel}" if kernel else "code that several kernels share"
        if layers:
            more = f" and {len(layers) - 3} more" if len(layers) > 3 else ""
            where += f" (layer {', '.join(repr(x) for x in layers[:3])}{more})"
        code = lines[number - 1].strip() if 0 < number <= len(lines) else ""
        found.append(f"{NAME}:{number}: {where} does not compile: {text}\n    {code}")
    if not found:
        return f"{NAME} does not compile:\n{log}"
    more = [f"... and {len(found) - 5} more errors"] if len(found) > 5 else []
    return "\n".join(found[:5] + more)


def _kernel_of(lines: Sequence[str], kernels: Sequence[tuple[int, str]], number: int) -> str | None:
    """The kernel whose body a line lies in: the last one to begin before it, unless a body ended in between."""
    begun = [k for k in kernels if k[0] <= number]
    if not begun or any(line.startswith("}") for line in lines[begun[-1][0] : number - 1]):
        return None
    return begun[-1][1]


def _instantiated(rest: str, lines: Sequence[str], kernels: Sequence[tuple[int, str]]) -> str | None:
    """The kernel that instantiates the template that an error lies in."""
    following = _ERROR.search(rest)
    block = rest[: following.start()] if following else rest
    for match in re.finditer(r"at line (\d+)", block):
        if kernel := _kernel_of(lines, kernels, int(match[1])):
            return kernel
    return None


def usage(log: str) -> dict[str, Usage]:
    """Registers, stack and spills by kernel, from the log of a compilation."""
    found: dict[str, Usage] = {}
    entry, stack = "", (0, 0, 0)
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            entry, stack = match[1], (0, 0, 0)
        elif entry and (match := _STACK.search(line)):
            stack = (int(match[1]), int(match[2]), int(match[3]))
        elif entry and (match := _REGISTERS.search(line)):
            found[entry] = Usage(int(match[1]), *stack)
    return found
