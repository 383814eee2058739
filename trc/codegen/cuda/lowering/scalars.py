"""Rate, counters, loss scale, metrics, the check for NaN, running statistics, casts of ranges."""

from __future__ import annotations

from trc.codegen.cuda.lowering.elementwise import flat_grid
from trc.codegen.cuda.lowering.launch import Arg, Launch, N
from trc.codegen.cuda.lowering.view import C_TYPES, MULTIPROCESSORS, NodeView, ceil_div, clamp, i64, lowering
from trc_runtime.schema.dtypes import DType
from trc_runtime.schema.kinds import Access

_ONE = (1, 1, 1)
_THREADS = 256
_CHECK_BLOCKS, _CHECK_UNROLL = 8 * MULTIPROCESSORS, 4
_CAST_VECTOR, _CAST_UNROLL = 8, 2


def _single(n: NodeView, arguments: list[tuple[str, Arg]], family: str = "scalars") -> list[Launch]:
    """A kernel of one thread with the kind's own name."""
    passed = ", ".join(text.rsplit(" ", 1)[1] for text, _ in arguments)
    return [n.launch(f"{n.kind}__f32", family, f"{n.kind}({passed})", arguments, _ONE, 1)]


def _pointers(n: NodeView, c_type: str, *roles: str) -> list[tuple[str, Arg]]:
    return [(f"{c_type} {role}", n.p(role)) for role in roles]


@lowering("fetch_rate")
def fetch_rate(n: NodeView) -> list[Launch]:
    """Compute lr = lr_table[min(iteration, length - 1)]."""
    table = n["lr_table"]
    return _single(
        n,
        [
            ("const float* table", table.p),
            ("const int* iteration", n.p("iteration")),
            ("float* lr", n.p("lr")),
            ("int length", N(table.rows * table.channels)),
        ],
    )


@lowering("count_step")
def count_step(n: NodeView) -> list[Launch]:
    """Compute iteration += 1, and applied += 1 unless the step is skipped."""
    return _single(n, [*_pointers(n, "int*", "iteration", "applied"), ("const int* has_nan", n.p("has_nan"))])


@lowering("bias_correction")
def bias_correction(n: NodeView) -> list[Launch]:
    """Compute 1 / (1 - beta ^ (applied + 1)) for both moments."""
    return _single(
        n,
        [
            *_pointers(n, "const float*", "beta1", "beta2"),
            ("const int* applied", n.p("applied")),
            ("float* correction1", n.p("bias_correction1")),
            ("float* correction2", n.p("bias_correction2")),
        ],
    )


@lowering("scale_update")
def scale_update(n: NodeView) -> list[Launch]:
    """Move the loss scale."""
    return _single(
        n,
        [
            ("float* scaling", n.p("scaling")),
            ("int* growth_counter", n.p("growth_counter")),
            ("const int* has_nan", n.p("has_nan")),
        ],
    )


@lowering("accumulate_metrics")
def accumulate_metrics(n: NodeView) -> list[Launch]:
    """Add the batch's loss and counts to the epoch's, unless the step is skipped."""
    return _single(
        n,
        [
            *_pointers(n, "const float*", "loss", "top1", "top5"),
            *_pointers(n, "float*", "accum_loss", "accum_top1", "accum_top5"),
            *_pointers(n, "const int*", "batch_size", "has_nan"),
        ],
    )


@lowering("check_nan")
def check_nan(n: NodeView) -> list[Launch]:
    """Compute has_nan = whether any number of the range is NaN or infinite."""
    (span,) = n.ranges(Access.READ)
    if span.dtype is not DType.F32:
        raise n.problem(f"checks float32 numbers, not {span.dtype.value}")
    blocks = clamp(ceil_div(span.elements, 4 * _THREADS * _CHECK_UNROLL), 1, _CHECK_BLOCKS)
    flags = n.temporary(blocks * 4)
    return [
        n.launch(
            "find_nan__f32",
            "scalars",
            f"find_nan<{_CHECK_UNROLL}>(x, flags, n)",
            [("const float* x", span.p), ("int* flags", flags), ("i64 n", i64(span.elements))],
            (blocks, 1, 1),
            _THREADS,
        ),
        n.launch(
            "any_flag__i32",
            "scalars",
            "any_flag(flags, has_nan, count)",
            [("const int* flags", flags), ("int* has_nan", n.p("has_nan")), ("int count", N(blocks))],
            _ONE,
            _THREADS,
        ),
    ]


@lowering("commit_stats")
def commit_stats(n: NodeView) -> list[Launch]:
    """The running statistics become those that forward computed, unless the step is skipped."""
    (following,), (committed,) = n.ranges(Access.READ), n.ranges(Access.UPDATE)
    if following.elements != committed.elements or following.dtype is not DType.F32:
        raise n.problem(f"the ranges have {following.elements} and {committed.elements} elements")
    return [
        n.launch(
            "commit_stats__f32",
            "scalars",
            "commit_stats(next, prev, n, has_nan)",
            [
                ("const float* next", following.p),
                ("float* prev", committed.p),
                ("i64 n", i64(committed.elements)),
                ("const int* has_nan", n.p("has_nan")),
            ],
            (max(1, ceil_div(committed.elements, 4 * _THREADS)), 1, 1),
            _THREADS,
        )
    ]


@lowering("cast_range")
def cast_range(n: NodeView) -> list[Launch]:
    """Copy a range to one of another type, element by element; slots of both types have equally many elements."""
    (source,), (target,) = n.ranges(Access.READ), n.ranges(Access.WRITE)
    if source.elements != target.elements:
        raise n.problem(f"the ranges have {source.elements} and {target.elements} elements")
    x, y = C_TYPES[source.dtype], C_TYPES[target.dtype]
    grid, threads = flat_grid(source.elements // _CAST_VECTOR, _CAST_UNROLL)
    return [
        n.launch(
            f"cast__{source.dtype.value}_{target.dtype.value}",
            "copies",
            f"cast<{x}, {y}, {_CAST_VECTOR}, {_CAST_UNROLL}>(x, y, n)",
            [(f"const {x}* x", source.p), (f"{y}* y", target.p), ("i64 n", i64(source.elements))],
            grid,
            threads,
            256,
        )
    ]
