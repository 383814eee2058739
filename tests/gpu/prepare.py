"""Compile everything the GPU tests need into the cache, on a machine that needs no GPU.

    TRC_CACHE=build/cuda-cache python -m tests.gpu.prepare

Carry build/cuda-cache to the machine with the GPU and set TRC_CACHE there too: the tests then compile nothing, as long
as NVRTC has the same version.
"""

from __future__ import annotations

import time

from tests.gpu.harness import ARCHITECTURE, STEP_CASES, code_of, own_cubin
from tests.gpu.test_cudnn import CASES
from trc.codegen.cuda.bundle import generate
from trc.diagnostics import CompileError
from trc_runtime.cuda.cubins import cache_folder, compile_cubin


def main() -> None:
    """Fill the cache and say what it took."""
    begin = time.perf_counter()
    print(f"cache {cache_folder()}")
    made = own_cubin(ARCHITECTURE)
    print(f"kinds: {made.seconds:.1f} s{' (hit)' if made.hit else ''}", flush=True)
    for case in CASES:
        try:
            code = generate(case.plan)
        except CompileError as err:
            print(f"{case.name}: {err}")
            continue
        if code.program.instances:
            compile_cubin(code.kernels, ARCHITECTURE)
    for key in STEP_CASES:
        try:
            made = compile_cubin(code_of(key).kernels, ARCHITECTURE)
            print(f"{key}: {made.seconds:.1f} s{' (hit)' if made.hit else ''}", flush=True)
        except CompileError as err:
            print(f"{key}: {err}")
    print(f"{time.perf_counter() - begin:.0f} s in all")


if __name__ == "__main__":
    main()
