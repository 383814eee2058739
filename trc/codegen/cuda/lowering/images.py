"""The normalisation of images that come as unsigned bytes."""

from __future__ import annotations

from trc.codegen.cuda.lowering.elementwise import flat_grid, wide
from trc.codegen.cuda.lowering.launch import Launch
from trc.codegen.cuda.lowering.view import NodeView, ceil_div, i64, lowering
from trc_runtime.schema.dtypes import DType

_UNROLL = 4
"""Vectors of 16 bytes that a thread writes."""

_MOST_THREADS = 256


@lowering("normalise_input", any_pitch=True)
def normalise_input(n: NodeView) -> list[Launch]:
    """Compute y = x * scale + shift, a channel at a time; x has rows of bytes without padding."""
    x, y = n["x"], n["y"]
    if x.dtype is not DType.U8 or not x.dense or not y.dtype.is_float:
        raise n.problem(f"normalises unsigned bytes to numbers, not {x.dtype.value} to {y.dtype.value}")
    if x.rows != y.rows or x.channels > y.channels:
        raise n.problem(f"'{x.name}' has the shape {x.shape}, '{y.name}' {y.shape}")
    for table in ("scale", "shift"):
        if n[table].elements != x.channels:
            raise n.problem(f"has {n[table].elements} numbers of {table} for {x.channels} channels")
    grid, threads = flat_grid(ceil_div(y.elements, wide(y.dtype)), _UNROLL)  # a thread has the last vector's rest
    return [
        n.launch(
            f"{n.kind}__{y.dtype.value}_c{x.channels}_p{y.pitch}",
            "input",
            f"normalise_input<{y.c_type}, {x.channels}, {y.pitch}, {_UNROLL}>(x, scale, shift, y, rows)",
            [
                ("const u8* x", x.p),
                ("const float* scale", n.p("scale")),
                ("const float* shift", n.p("shift")),
                (f"{y.c_type}* y", y.p),
                ("i64 rows", i64(x.rows)),
            ],
            grid,
            threads,
            _MOST_THREADS,
        )
    ]
