"""Sums for gradients of biases, additions of biases, flatten, channel padding and copies between pitches."""

from __future__ import annotations

from trc.codegen.cuda.lowering.elementwise import flat_grid, one_each
from trc.codegen.cuda.lowering.launch import Arg, Launch, N
from trc.codegen.cuda.lowering.view import (
    MULTIPROCESSORS,
    Matrix,
    NodeView,
    ceil_div,
    clamp,
    columns_first,
    i64,
    lowering,
    rows_first,
)

SUM_BLOCKS = 4 * MULTIPROCESSORS
"""Blocks of the first stage of a sum over rows."""

SUM_UNROLL = 4
"""Vectors that a thread of it has in flight of each operand."""

_ONE_STAGE_ROWS = 32
"""Rows a thread up to which one stage does."""

FINISH_THREADS, FINISH_COLUMNS = 512, 32
"""The second stage: threads of a block, and columns that it adds (add_partials in common.cuh)."""

_BIAS_UNROLL, _COPY_UNROLL = 4, 4


def finish_grid(channels: int) -> tuple[int, int, int]:
    """The grid of the second stage."""
    return ceil_div(channels, FINISH_COLUMNS), 1, 1


@lowering("fc_bwd_bias", "conv_bwd_bias")
def bwd_bias(n: NodeView) -> list[Launch]:
    """Compute dbias = the sum of dy over all rows."""
    dy, dbias = n["dy"], n["dbias"]
    v = dy.vector
    block = columns_first(dy.pitch // v)
    splits = clamp(SUM_BLOCKS // block.chunks, 1, max(1, ceil_div(dy.rows, block.tall * SUM_UNROLL)))
    if dy.rows <= block.tall * _ONE_STAGE_ROWS:
        splits = 1
    partial: Arg = dbias.p if splits == 1 else n.temporary(splits * dy.channels * 4)
    t = dy.c_type
    first = n.launch(
        f"column_sums__{dy.dtype.value}_c{dy.channels}_p{dy.pitch}",
        "columns",
        f"column_sums<{t}, {dy.channels}, {dy.pitch}, {v}, {block.wide}, {block.tall}, {SUM_UNROLL}>(dy, out, rows)",
        [(f"const {t}* dy", dy.p), ("float* out", partial), ("i64 rows", i64(dy.rows))],
        (splits, block.chunks, 1),
        block.threads,
    )
    if splits == 1:
        return [first]
    second = n.launch(
        "column_sums_finish__f32",
        "columns",
        "column_sums_finish(partial, dbias, splits, C)",
        [
            ("const float* partial", partial),
            ("float* dbias", dbias.p),
            ("int splits", N(splits)),
            ("int C", N(dy.channels)),
        ],
        finish_grid(dy.channels),
        FINISH_THREADS,
    )
    return [first, second]


def add_bias(n: NodeView, y: Matrix, bias: Matrix, act: str = "none") -> Launch:
    """Compute y = act(y + bias) in place: what follows a fully connected layer or a convolution without its own bias.

    `y` is the node's result, `bias` float32 with an entry a channel.
    """
    word = "" if act == "none" else f"_{act}"
    v = y.vector
    block = rows_first(y.pitch // v)
    t = y.c_type
    return n.launch(
        f"add_bias__{y.dtype.value}_c{y.channels}_p{y.pitch}{word}",
        "columns",
        f"add_bias<{t}, {y.channels}, {y.pitch}, {v}, {block.wide}, {block.tall}, {_BIAS_UNROLL}, {act.upper()}>"
        "(y, bias, rows)",
        [(f"{t}* y", y.p), ("const float* bias", bias.p), ("i64 rows", i64(y.rows))],
        (ceil_div(y.rows, block.tall * _BIAS_UNROLL), block.chunks, 1),
        block.threads,
    )


# ---------------------------------------------------------------- copies


def is_plain_copy(n: NodeView) -> bool:
    """Whether a `copy` node moves bytes only, so that a copy call does: both sides have one pitch."""
    return n["x"].pitch == n["y"].pitch


def _needs_kernel(n: NodeView) -> bool:
    return not is_plain_copy(n)


def _copy_bytes(n: NodeView, source: Arg, target: Arg, nbytes: int) -> Launch:
    grid, threads = flat_grid(nbytes // 16, _COPY_UNROLL)
    return n.launch(
        "copy_bytes__u8",
        "copies",
        f"copy_bytes<{_COPY_UNROLL}>(x, y, n)",
        [("const u8* x", source), ("u8* y", target), ("i64 n", i64(nbytes))],
        grid,
        threads,
        256,
    )


def _reshape(n: NodeView, x: Matrix, y: Matrix) -> list[Launch]:
    """Copy all elements in the order of memory, whatever the padding of each side."""
    if x.rows * x.channels != y.rows * y.channels or x.dtype is not y.dtype:
        raise n.problem(f"cannot copy {x.dtype.value}{x.shape} to {y.dtype.value}{y.shape}")
    size = x.dtype.itemsize
    if x.dense and y.dense:
        return [_copy_bytes(n, x.p, y.p, x.elements * size)]
    source: Arg = x.p
    launches: list[Launch] = []
    if x.offset < y.offset + y.elements * size and y.offset < x.offset + x.elements * size:
        # The result lies where the input does, and elements move: read from a copy.
        source = n.temporary(x.elements * size)
        launches.append(_copy_bytes(n, x.p, source, x.elements * size))
    launches.append(
        n.launch(
            f"reshape__{x.dtype.value}_c{x.channels}_p{x.pitch}_c{y.channels}_p{y.pitch}",
            "copies",
            f"reshape_rows<{x.c_type}, {x.channels}, {x.pitch}, {y.channels}, {y.pitch}>(x, y, rows)",
            [(f"const {x.c_type}* x", source), (f"{x.c_type}* y", y.p), ("i64 rows", i64(y.rows))],
            one_each(y.elements),
            256,
        )
    )
    return launches


@lowering("copy", when=_needs_kernel, any_pitch=True)
def copy(n: NodeView) -> list[Launch]:
    """Compute y = x where the two are padded differently."""
    return _reshape(n, n["x"], n["y"])


@lowering("flatten_fwd", any_pitch=True)
def flatten_fwd(n: NodeView) -> list[Launch]:
    """Compute y = x in the order of memory."""
    return _reshape(n, n["x"], n["y"])


@lowering("flatten_bwd", any_pitch=True)
def flatten_bwd(n: NodeView) -> list[Launch]:
    """Compute dx = dy in the order of memory."""
    return _reshape(n, n["dy"], n["dx"])


def _resize(n: NodeView, x: Matrix, y: Matrix) -> list[Launch]:
    if x.rows != y.rows or x.dtype is not y.dtype:
        raise n.problem(f"cannot resize {x.dtype.value}{x.shape} to {y.dtype.value}{y.shape}")
    return [
        n.launch(
            f"resize__{x.dtype.value}_c{x.channels}_p{x.pitch}_c{y.channels}_p{y.pitch}",
            "copies",
            f"resize_rows<{x.c_type}, {x.channels}, {x.pitch}, {y.channels}, {y.pitch}>(x, y, rows)",
            [(f"const {x.c_type}* x", x.p), (f"{x.c_type}* y", y.p), ("i64 rows", i64(y.rows))],
            one_each(y.elements),
            256,
        )
    ]


@lowering("channel_padding_fwd", any_pitch=True)
def channel_padding_fwd(n: NodeView) -> list[Launch]:
    """Append channels of zeros."""
    return _resize(n, n["x"], n["y"])


@lowering("channel_padding_bwd", any_pitch=True)
def channel_padding_bwd(n: NodeView) -> list[Launch]:
    """Drop the appended channels."""
    return _resize(n, n["dy"], n["dx"])
