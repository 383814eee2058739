"""The moving average of the weights."""

from __future__ import annotations

from trc.codegen.cuda.lowering.launch import Arg, Launch, N
from trc.codegen.cuda.lowering.view import NodeView, ceil_div, i64, lowering
from trc_runtime.schema.dtypes import DType
from trc_runtime.schema.kinds import Access

_THREADS, _ELEMENTS, _UNROLL = 256, 4, 2


@lowering("ema_update")
def ema_update(n: NodeView) -> list[Launch]:
    """Compute e += alpha (w - e) over a range."""
    spans = n.ranges(Access.READ) + n.ranges(Access.UPDATE)
    if len(spans) != 2 or len({s.elements for s in spans}) != 1 or any(s.dtype is not DType.F32 for s in spans):
        sizes = ", ".join(f"{s.elements} {s.dtype.value}" for s in spans)
        raise n.problem(f"the ranges are {sizes}, and must be two of float32 numbers, equally many")
    warmup = n.flag("warmup")
    arguments: list[tuple[str, Arg]] = [
        ("const float* w", spans[0].p),
        ("float* e", spans[1].p),
        ("i64 n", i64(spans[0].elements)),
        ("const float* alpha", n.p("alpha")),
        ("const int* applied", n.p("applied")),
        ("const int* has_nan", n.p("has_nan")),
    ]
    grid = max(1, ceil_div(spans[0].elements, _THREADS * _ELEMENTS * _UNROLL)), 1, 1
    name = f"ema_update__f32{'_warmup' if warmup else ''}"
    call = f"ema<{str(warmup).lower()}, {_UNROLL}>(w, e, n, alpha, applied, has_nan)"
    return [n.launch(name, "ema", call, arguments, grid, _THREADS)]


@lowering("accumulate_batch")
def accumulate_batch(n: NodeView) -> list[Launch]:
    """Add the batch's loss and counts to those of the pass."""
    reads, sums = ("loss", "top1", "top5"), ("accum_loss", "accum_top1", "accum_top5")
    arguments: list[tuple[str, Arg]] = [
        *((f"const float* {role}", n.p(role)) for role in reads),
        *((f"float* {role}", n.p(role)) for role in sums),
        ("int samples", N(n["label"].elements)),
    ]
    call = f"accumulate_batch({', '.join((*reads, *sums))}, samples)"
    return [n.launch("accumulate_batch__f32", "ema", call, arguments, (1, 1, 1), 1)]
