"""Cases of images that come as bytes: every pixel, odd channel counts, padded rows, tiles that end anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from tests.unit.codegen.cuda.differential import Case, ranges
from tests.unit.runtime.cpu.plans import PlanBuilder
from trc_runtime.schema.config import Normalise
from trc_runtime.schema.dtypes import DType
from trc_runtime.schema.normalise import scale_and_shift
from trc_runtime.schema.regions import Region, align_up, channel_alignment

SHAPES = ((7, 5, 3), (3, 16, 16), (2, 61, 67), (1, 1, 1))
"""Samples, height and width: less than a vector, whole ones, and tiles of a large block and of small ones."""

LONG = (11, 224, 224)
"""Long enough for blocks of 256 threads (with four channels, more vectors than 132 blocks of that size hold)."""


def pixels() -> Iterator[Case]:
    for dtype in ("fp32", "fp16", "bf16"):
        for c, wide in ((1, 1), (1, 4), (2, 2), (3, 3), (3, 4), (4, 4), (5, 5), (6, 8), (17, 17), (33, 36)):
            for n, h, w in (*SHAPES, *((LONG,) if wide == 4 and dtype != "bf16" else ())):
                yield _case(dtype, n, h, w, c, wide)
            if rows := _beyond_a_block(dtype, wide):
                yield _case(dtype, 1, 1, rows, c, wide)


def _beyond_a_block(dtype: str, wide: int) -> int:
    """Rows of which a part of a vector lies behind whole blocks of 64 threads with 4 vectors each; 0 for none."""
    vector, pitch = (4, wide) if dtype == "fp32" else (8, align_up(wide, channel_alignment(Region.I_A_DATA, DType.F16)))
    block = 64 * 4 * vector
    return next((rows for rows in range(block // pitch, 2 * block) if 0 < rows * pitch % block < vector), 0)


def _case(dtype: str, n: int, h: int, w: int, c: int, wide: int) -> Case:
    rng = np.random.default_rng(n * h * w * c + wide)
    images = rng.integers(0, 256, (n, h, w, c), dtype=np.uint8)
    images.reshape(-1)[: min(256, images.size)] = np.arange(256)[: min(256, images.size)]
    tables = scale_and_shift(Normalise(tuple(rng.uniform(-0.5, 1, c)), tuple(rng.uniform(0.05, 2, c))), np.dtype("f4"))

    def build(b: PlanBuilder) -> Mapping[str, np.ndarray]:
        b.tensor("x", Region.I_A_BYTES, images.shape)
        b.tensor("y", Region.I_A_DATA, (n, h, w, wide), channels=c if c < wide else None)
        values = {"x": images}
        for name, numbers in zip(("scale", "shift"), tables, strict=True):
            b.tensor(name, Region.S_TABLE, (1, 1, 1, c))
            values[name] = numbers.reshape(1, 1, 1, c)
        b.node("normalise_input", reads={"x": "x"}, writes={"y": "y"}, scalars={"scale": "scale", "shift": "shift"})
        return values

    return ranges(f"{n}x{h}x{w}x{c}-to-{wide}", build, dtype, ulps=0.0)
