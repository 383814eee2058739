"""What a node becomes: launches of kernel instances with their arguments.

The arguments have the names and fields of `trc_runtime.cuda.calls`, and their text is what a driver says.
"""

from __future__ import annotations

from dataclasses import dataclass

Dim3 = tuple[int, int, int]


@dataclass(frozen=True)
class P:
    """A pointer into the arena, `offset` bytes from its beginning."""

    offset: int

    def __str__(self) -> str:
        return f"P({self.offset})"


@dataclass(frozen=True)
class S:
    """A pointer into the node's own scratch memory, `offset` bytes from its beginning."""

    offset: int

    def __str__(self) -> str:
        return f"S({self.offset})"


@dataclass(frozen=True)
class I:  # noqa: E742 - named as in the driver
    """A 64-bit signed integer, `i64` in a kernel."""

    value: int

    def __str__(self) -> str:
        return f"I({self.value})"


@dataclass(frozen=True)
class N:
    """A 32-bit signed integer, `int` in a kernel."""

    value: int

    def __str__(self) -> str:
        return f"N({self.value})"


@dataclass(frozen=True)
class F:
    """A 32-bit floating-point number, `float` in a kernel."""

    value: float

    def __str__(self) -> str:
        return f"F({self.value!r})"


@dataclass(frozen=True)
class D:
    """A 64-bit floating-point number, `double` in a kernel."""

    value: float

    def __str__(self) -> str:
        return f"D({self.value!r})"


Arg = P | S | I | N | F | D


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel: its C++ type (`const __half*`, `i64`, `int`, `float`, `double`) and name."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type} {self.name}"


@dataclass(frozen=True)
class Instance:
    """A kernel: a template of a family with its constants, under a name made of both.

    `family` is a file of `kernels/`, `call` the expression that is the kernel's body, `threads` the largest block it
    may be launched with. `resident` is how many blocks of that size should fit a multiprocessor, 0 for the compiler's
    choice: where that is to save a register and spill, a number leaves room.
    """

    name: str
    family: str
    parameters: tuple[Parameter, ...]
    call: str
    threads: int
    resident: int = 0

    @property
    def source(self) -> str:
        """The definition, with the whole signature in one line."""
        parameters = ", ".join(str(p) for p in self.parameters)
        bounds = f"{self.threads}, {self.resident}" if self.resident else str(self.threads)
        return (
            f'extern "C" __global__ void __launch_bounds__({bounds})\n'
            f"{self.name}({parameters})\n{{\n    {self.call};\n}}\n"
        )


@dataclass(frozen=True)
class Launch:
    """One launch. `shared` is the dynamic shared memory in bytes (0 everywhere so far)."""

    instance: Instance
    grid: Dim3
    block: Dim3
    args: tuple[Arg, ...]
    shared: int = 0


@dataclass(frozen=True)
class Lowered:
    """A node in one column: its launches, which run one after another, and the bytes of scratch that they share."""

    launches: tuple[Launch, ...]
    scratch: int
