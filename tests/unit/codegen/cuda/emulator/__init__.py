"""Run the emitted kernels on a CPU: kernels.cu is compiled as C++, with each thread a fiber (see emulator.h).

Slow, but exact about what each thread does: alignment and the bounds of arrays in shared memory are checked by the
compiler's sanitizer.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trc.codegen.cuda.emitter import source_of
from trc.codegen.cuda.lowering import D, F, I, Instance, Launch, N, P, S

HERE = Path(__file__).parent
COMPILER = shutil.which("g++")

_FLAGS = (
    *("-std=c++17", "-O1", "-w", "-fPIC", "-shared", "-ffp-contract=off", "-fno-strict-aliasing"),
    *("-fsanitize=alignment,bounds", "-fno-sanitize-recover=all", "-static-libubsan"),
)
_CTYPES = {I: ctypes.c_int64, N: ctypes.c_int32, F: ctypes.c_float, D: ctypes.c_double}
_STORED = {I: "i64", N: "int", F: "float", D: "double"}


def _trampoline(instance: Instance) -> str:
    values = ", ".join(f"*({p.type}*)a[{n}]" for n, p in enumerate(instance.parameters))
    return (
        f"static void call__{instance.name}(void** a) {{ {instance.name}({values}); }}\n"
        f'extern "C" void run__{instance.name}(void** a, const unsigned* grid, const unsigned* block)\n'
        f"{{ emulator::launch(call__{instance.name}, a, grid, block); }}\n"
    )


class Emulator:
    """Kernels as functions."""

    def __init__(self, instances: Mapping[str, Instance]) -> None:
        assert COMPILER is not None
        text = '#include "emulator.h"\n' + source_of(dict(sorted(instances.items())))
        text += "\n".join(_trampoline(i) for i in instances.values())
        headers = b"".join(p.read_bytes() for p in sorted(HERE.glob("*.h")))
        key = hashlib.sha256(text.encode() + headers + repr(_FLAGS).encode()).hexdigest()[:24]
        folder = Path(tempfile.gettempdir()) / f"trc-emulator-{os.getuid()}"
        folder.mkdir(exist_ok=True)
        library = folder / f"{key}.so"
        if not library.exists():
            source = folder / f"{key}.{os.getpid()}.cpp"
            source.write_text(text)
            made = source.with_suffix(".so")
            done = subprocess.run(
                [COMPILER, *_FLAGS, "-I", str(HERE), "-o", str(made), str(source)], capture_output=True, text=True
            )
            source.unlink()
            assert done.returncode == 0, done.stderr[:4000]
            made.rename(library)
        self._library = ctypes.CDLL(str(library))

    def run(self, launches: Iterable[Launch], arena: np.ndarray, scratch: np.ndarray) -> None:
        """Run launches one after another, with pointers into the arena and the node's scratch memory."""
        for launch in launches:
            check_launch(launch)
            holders: list[Any] = []
            for arg in launch.args:
                if isinstance(arg, P):
                    holders.append(ctypes.c_void_p(arena.ctypes.data + arg.offset))
                elif isinstance(arg, S):
                    holders.append(ctypes.c_void_p(scratch.ctypes.data + arg.offset))
                else:
                    holders.append(_CTYPES[type(arg)](arg.value))
            pointers = (ctypes.c_void_p * len(holders))(*(ctypes.addressof(h) for h in holders))
            function = getattr(self._library, f"run__{launch.instance.name}")
            function(pointers, (ctypes.c_uint * 3)(*launch.grid), (ctypes.c_uint * 3)(*launch.block))


def check_launch(launch: Launch) -> None:
    """Arguments against the signature."""
    assert len(launch.args) == len(launch.instance.parameters), launch.instance.name
    for arg, parameter in zip(launch.args, launch.instance.parameters, strict=True):
        pointer = isinstance(arg, P | S)
        assert pointer == parameter.type.endswith("*"), (launch.instance.name, parameter)
        assert pointer or _STORED[type(arg)] == parameter.type, (launch.instance.name, parameter)
    assert launch.block[0] <= launch.instance.threads
