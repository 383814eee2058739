"""Compile everything the GPU tests need into the cache, on a machine that needs no GPU.

    TRC_CACHE=build/cuda-cache python -m tests.gpu.prepare

Carry build/cuda-cache to the machine with the GPU and set TRC_CACHE there too: the tests then compile nothing, as long
as NVRTC has the same version.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from tests.gpu.harness import ARCHITECTURE, EMA_CASES, STEP_CASES, code_of, own_cases, own_source
from tests.gpu.test_cudnn import CASES
from trc.codegen.cuda.bundle import generate
from trc_runtime.cuda.cubins import cache_folder, compile_cubin


def sources() -> Iterator[tuple[str, str]]:
    """Every kernels.cu that the tests load, under a name; the long ones first."""
    for key in (*reversed(STEP_CASES), *EMA_CASES):
        yield " ".join(map(str, key)), code_of(key).kernels
    for kind in own_cases():
        yield kind, own_source(kind)
    for case in CASES:
        code = generate(case.plan)
        if code.program.instances:
            yield case.name, code.kernels


def compile_one(item: tuple[str, str]) -> str:
    """Compile one source into the cache."""
    name, source = item
    made = compile_cubin(source, ARCHITECTURE)
    return f"{name}: {made.seconds:.1f} s{' (hit)' if made.hit else ''}"


def main() -> None:
    """Fill the cache and say what it took."""
    begin = time.perf_counter()
    different = {source: name for name, source in sources()}
    print(f"{len(different)} sources into {cache_folder()}", flush=True)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for line in pool.map(compile_one, [(name, source) for source, name in different.items()]):
            if not line.endswith("(hit)") and float(line.split()[-2]) > 3:
                print(line, flush=True)
    print(f"{time.perf_counter() - begin:.0f} s in all")


if __name__ == "__main__":
    main()
