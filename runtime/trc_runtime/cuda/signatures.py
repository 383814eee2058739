"""The kernels of a kernels.cu: names, and what they take."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trc_runtime.cuda.calls import Arg, D, DriverError, F, I, N, P, S

_KERNEL = re.compile(
    r'extern\s+"C"\s+__global__\s+(?:void\s+)?(?:__launch_bounds__\s*\(([^)]*)\)\s*)?(?:void\s+)?(\w+)\s*\(([^)]*)\)',
    re.DOTALL,
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_INTEGERS = {
    "long long": I, "i64": I, "int64_t": I, "long long int": I, "unsigned long long": I, "u64": I, "size_t": I,
    "uint64_t": I, "int": N, "i32": N, "int32_t": N, "unsigned": N, "unsigned int": N, "u32": N, "uint32_t": N,
    "float": F, "double": D,
}  # fmt: skip
_SIZES = {
    "float": 4, "int": 4, "i32": 4, "unsigned": 4, "u32": 4, "unsigned int": 4, "int32_t": 4, "uint32_t": 4,
    "double": 8, "long long": 8, "i64": 8, "u64": 8, "half": 2, "__half": 2, "__nv_bfloat16": 2, "bf16": 2,
    "uint4": 16, "float4": 16, "int4": 16, "half2": 4, "__half2": 4, "__nv_bfloat162": 4,
}  # fmt: skip
ARGUMENTS: dict[str, type[Arg]] = dict(_INTEGERS)
"""Which wrapper stands for a parameter type."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel. `wanted` is the wrapper that fits, P standing for pointers.

    `writable` is false for a pointer to const; `alignment` is that of what it points to.
    """

    name: str
    text: str
    wanted: type[Arg]
    writable: bool
    alignment: int

    def accepts(self, arg: Arg) -> bool:
        """Whether an argument fits."""
        return isinstance(arg, P | S) if self.wanted is P else isinstance(arg, self.wanted)


@dataclass(frozen=True)
class Signature:
    """A kernel. `threads` is its launch bound, where it has one."""

    name: str
    parameters: tuple[Parameter, ...]
    threads: int | None


def parse(source: str) -> dict[str, Signature]:
    """The kernels of a source by name; DriverError for a parameter that is none of the types in use."""
    found: dict[str, Signature] = {}
    for match in _KERNEL.finditer(_COMMENT.sub(" ", source)):
        bound, name, parameters = match.groups()
        if name in found:
            raise DriverError(f"kernels.cu defines {name} twice")
        listed = [p for p in (" ".join(x.split()) for x in parameters.split(",")) if p and p != "void"]
        first = bound.split(",")[0].strip() if bound else ""
        threads = int(first) if first.isdigit() else None
        found[name] = Signature(name, tuple(_parameter(name, text) for text in listed), threads)
    return found


def _parameter(kernel: str, text: str) -> Parameter:
    plain = re.sub(r"\b(__restrict__|__restrict|__grid_constant__)\b", " ", text)
    if "*" in plain:
        pointee, _, name = plain.rpartition("*")
        words = pointee.replace("*", " ").split()
        const = "const" in words
        kind = " ".join(w for w in words if w not in ("const", "volatile"))
        return Parameter(name.strip(), text, P, not const, _SIZES.get(kind, 1))
    words = [w for w in plain.split() if w != "const"]
    kind = " ".join(words[:-1])
    wanted = _INTEGERS.get(kind)
    if wanted is None:
        raise DriverError(f"kernel {kernel} takes '{text}': a driver can pass pointers, {', '.join(_INTEGERS)}")
    return Parameter(words[-1], text, wanted, False, 1)
