"""Batch normalisation, deferred and not, and its passes."""

from __future__ import annotations

from trc.codegen.cuda.lowering.dense import FINISH_THREADS, SUM_BLOCKS, finish_grid
from trc.codegen.cuda.lowering.launch import Arg, D, F, Launch, N, S
from trc.codegen.cuda.lowering.view import (
    MULTIPROCESSORS,
    Matrix,
    NodeView,
    Rectangle,
    ceil_div,
    clamp,
    columns_first,
    i64,
    lowering,
    pitches,
    rows_first,
    vector_of,
)

_ACTS = {"none": "NONE", "relu": "RELU", "relu6": "RELU6"}
_APPLY_UNROLL, _JOIN_UNROLL, _GRADIENT_UNROLL = 4, 2, 2
"""Rows that a thread has in flight: with one operand, with two, and in backward."""

_MOMENT_UNROLL = 4
_BUSY_TILES = 32 * MULTIPROCESSORS
"""Tiles above which a block does several, so that what belongs to its channels is read less often."""

_TILES = 4
_CHANNEL_THREADS = 128

Arguments = list[tuple[str, Arg]]


def _act(n: NodeView) -> str:
    act = n.text("act", "none")
    if act not in _ACTS:
        raise n.problem(f"act is one of {', '.join(_ACTS)}, not '{act}'")
    return act


def _constants(block: Rectangle, v: int, *matrices: Matrix) -> str:
    """Channels, the pitches in this order, elements of an access, and the block."""
    rows = ", ".join(str(m.pitch) for m in matrices)
    return f"{matrices[0].channels}, {rows}, {v}, {block.wide}, {block.tall}"


def _suffix(matrices: tuple[Matrix, ...], *more: str) -> str:
    m = matrices[0]
    return "_".join((m.dtype.value, f"c{m.channels}", pitches(*matrices), *(t for t in more if t)))


def _apply_grid(m: Matrix, block: Rectangle, unroll: int) -> tuple[int, int, int]:
    tiles = ceil_div(m.rows, block.tall * unroll)
    return ceil_div(tiles, _TILES) if tiles * block.chunks > _BUSY_TILES else tiles, block.chunks, 1


def _sum_blocks(unroll: int, v: int, *matrices: Matrix) -> tuple[Rectangle, int]:
    """The block of a first stage of sums, and how many of them share the rows."""
    block = columns_first(min(m.pitch for m in matrices) // v)
    return block, clamp(SUM_BLOCKS // block.chunks, 1, ceil_div(matrices[0].rows, block.tall * unroll))


# ---------------------------------------------------------------- statistics


def _moments(n: NodeView, x: Matrix, shifted: bool) -> tuple[Launch, S, int]:
    """The first stage of sums and sums of squares: launch, partial sums, and how many of them."""
    block, splits = _sum_blocks(_MOMENT_UNROLL, x.vector, x)
    partial = n.temporary(2 * splits * x.channels * 4)
    flag = str(shifted).lower()
    launch = n.launch(
        f"moments__{_suffix((x,), 'shifted' if shifted else '')}",
        "norm",
        f"moments<{x.c_type}, {_constants(block, x.vector, x)}, {_MOMENT_UNROLL}, {flag}>(x, partial, rows)",
        [(f"const {x.c_type}* x", x.p), ("float* partial", partial), ("i64 rows", i64(x.rows))],
        (splits, block.chunks, 1),
        block.threads,
    )
    return launch, partial, splits


@lowering("bn_stats")
def bn_stats(n: NodeView) -> list[Launch]:
    """The channels' sums and sums of squares."""
    return channel_sums(n, n["x"])


def channel_sums(n: NodeView, x: Matrix) -> list[Launch]:
    """A tensor's channel sums and sums of squares into the node's `sum` and `sumsq`, always in the same order."""
    first, partial, splits = _moments(n, x, shifted=False)
    second = n.launch(
        "store_moments__f32",
        "norm",
        "store_moments(partial, sum, sumsq, splits, C)",
        [
            ("const float* partial", partial),
            ("float* sum", n.p("sum")),
            ("float* sumsq", n.p("sumsq")),
            ("int splits", N(splits)),
            ("int C", N(x.channels)),
        ],
        finish_grid(x.channels),
        FINISH_THREADS,
    )
    return [first, second]


def _normaliser(n: NodeView, rows: int) -> tuple[str, Arguments]:
    """What makes a Normaliser in a kernel, and the arguments that it takes."""
    reads, writes = ("gamma", "beta", "prev_mean", "prev_var"), ("next_mean", "next_var", "saved_mean", "saved_invstd")
    arguments: Arguments = [
        *((f"const float* {r}", n.p(r)) for r in reads),
        *((f"float* {r}", n.p(r)) for r in writes),
        ("double eps", D(n.number("eps"))),
        ("float momentum", F(n.number("momentum"))),
        ("i64 rows", i64(rows)),
    ]
    return f"Normaliser{{{', '.join((*reads, *writes, 'eps', 'momentum', 'rows'))}}}", arguments


@lowering("bn_finalize")
def bn_finalize(n: NodeView) -> list[Launch]:
    """Sums to scale, shift and running statistics."""
    x, scale = n["x"], n["scale"]
    s = scale.c_type
    normaliser, more = _normaliser(n, x.rows)
    offset: Arguments = [("const float* offset", n.p("offset"))] if "offset" in n else []
    arguments: Arguments = [
        ("const float* sum", n.p("sum")),
        ("const float* sumsq", n.p("sumsq")),
        *offset,
        (f"{s}* scale", scale.p),
        (f"{s}* shift", n.p("shift")),
        ("int C", N(x.channels)),
        *more,
    ]
    call = f"finalize<{s}>(sum, sumsq, {'offset' if offset else 'nullptr'}, scale, shift, C, {normaliser})"
    grid = ceil_div(x.channels, _CHANNEL_THREADS), 1, 1
    name = f"bn_finalize__{scale.dtype.value}{'_offset' if offset else ''}"
    return [n.launch(name, "norm", call, arguments, grid, _CHANNEL_THREADS)]


@lowering("bn_fwd", any_pitch=True)
def bn_fwd(n: NodeView) -> list[Launch]:
    """Statistics and the normalised result."""
    x, y = n["x"], n["y"]
    n.same(x, y)
    first, partial, splits = _moments(n, x, shifted=True)
    factor = n.temporary(x.channels * 4)
    normaliser, more = _normaliser(n, x.rows)
    t = x.c_type
    second = n.launch(
        f"bn_fwd_finish__{x.dtype.value}",
        "norm",
        f"finish_forward<{t}>(partial, x, factor, splits, C, {normaliser})",
        [
            ("const float* partial", partial),
            (f"const {t}* x", x.p),
            ("float* factor", factor),
            ("int splits", N(splits)),
            ("int C", N(x.channels)),
            *more,
        ],
        finish_grid(x.channels),
        FINISH_THREADS,
    )
    v = vector_of(x, y)
    block = rows_first(y.pitch // v)
    third = n.launch(
        f"bn_fwd_apply__{_suffix((x, y))}",
        "norm",
        f"apply_centred<{t}, {_constants(block, v, x, y)}, {_APPLY_UNROLL}>(x, mean, factor, beta, y, rows)",
        [
            (f"const {t}* x", x.p),
            ("const float* mean", n.p("saved_mean")),
            ("const float* factor", factor),
            ("const float* beta", n.p("beta")),
            (f"{t}* y", y.p),
            ("i64 rows", i64(x.rows)),
        ],
        _apply_grid(x, block, _APPLY_UNROLL),
        block.threads,
    )
    return [first, second, third]


# ---------------------------------------------------------------- passes that apply scale and shift


def _apply(n: NodeView, scale_role: str, shift_role: str) -> list[Launch]:
    """The pass y = act(x scale + shift + shortcut) for all kinds of that form."""
    x, y, scale, shortcut = n["x"], n["y"], n[scale_role], n.get("shortcut")
    rows = (x, y, y) if shortcut is None else (x, shortcut, y)
    n.same(*rows)
    act = _act(n)
    second = n.get("shortcut_scale")
    form = "NO_SHORTCUT" if shortcut is None else "PLAIN" if second is None else "NORMALISED"
    unroll = _APPLY_UNROLL if shortcut is None else _JOIN_UNROLL
    v = vector_of(*rows)
    block = rows_first(y.pitch // v)
    t, s = x.c_type, scale.c_type
    arguments: Arguments = [
        (f"const {t}* x", x.p),
        (f"const {s}* scale", scale.p),
        (f"const {s}* shift", n.p(shift_role)),
    ]
    passed = ["x", "scale", "shift", "nullptr", "nullptr", "nullptr", "y", "rows"]
    if shortcut is not None:
        arguments.append((f"const {t}* shortcut", shortcut.p))
        passed[3] = "shortcut"
    if second is not None:
        arguments += [(f"const {s}* scale2", second.p), (f"const {s}* shift2", n.p("shortcut_shift"))]
        passed[4:6] = "scale2", "shift2"
    arguments += [(f"{t}* y", y.p), ("i64 rows", i64(x.rows))]
    kind = {"NO_SHORTCUT": "apply_norm", "PLAIN": "add_norm", "NORMALISED": "add_norms"}[form]
    return [
        n.launch(
            f"{kind}__{_suffix(rows, scale.dtype.value if scale.dtype is not x.dtype else '', act)}",
            "norm",
            f"apply_norm<{t}, {s}, {_constants(block, v, *rows)}, {unroll}, {_ACTS[act]}, {form}>({', '.join(passed)})",
            arguments,
            _apply_grid(x, block, unroll),
            block.threads,
        )
    ]


@lowering("materialise", "norm_add_act_fwd", any_pitch=True)
def materialise(n: NodeView) -> list[Launch]:
    """Write a deferred value, or the end of a block."""
    return _apply(n, "scale", "shift")


@lowering("affine_fwd", "affine_add_act_fwd", any_pitch=True)
def affine_fwd(n: NodeView) -> list[Launch]:
    """The same in inference, with scale and bias in the master type."""
    return _apply(n, "scale", "bias")


@lowering("bn_fold")
def bn_fold(n: NodeView) -> list[Launch]:
    """Running statistics to the scale and bias of inference."""
    channels = n["gamma"].channels
    arguments: Arguments = [
        *((f"const float* {r}", n.p(r)) for r in ("gamma", "beta", "mean", "var")),
        ("float* scale", n.p("eq_scale")),
        ("float* bias", n.p("eq_bias")),
        ("int C", N(channels)),
        ("float eps", F(n.number("eps"))),
    ]
    call = "fold(gamma, beta, mean, var, scale, bias, C, eps)"
    grid = ceil_div(channels, _CHANNEL_THREADS), 1, 1
    return [n.launch("bn_fold__f32", "norm", call, arguments, grid, _CHANNEL_THREADS)]


# ---------------------------------------------------------------- backward


@lowering("norm_bwd", "bn_bwd", any_pitch=True)
def norm_bwd(n: NodeView) -> list[Launch]:
    """Gradients of gamma, beta and (if wanted) the input, through the activation."""
    dy, x, dx = n["dy"], n["x"], n.get("dx")
    n.same(dy, x, *([] if dx is None else [dx]))
    act = _act(n)
    t = x.c_type
    scale = n["scale"] if act != "none" else None
    s = t if scale is None else scale.c_type
    scales: Arguments = [] if scale is None else [(f"const {s}* scale", scale.p), (f"const {s}* shift", n.p("shift"))]
    passed = "nullptr, nullptr" if scale is None else "scale, shift"
    more = s_name(scale, x), act
    v = vector_of(dy, x)
    block, splits = _sum_blocks(_GRADIENT_UNROLL, v, dy, x)
    partial = n.temporary(2 * splits * x.channels * 4)
    first = n.launch(
        f"norm_gradients__{_suffix((dy, x), *more)}",
        "norm",
        f"norm_gradients<{t}, {s}, {_constants(block, v, dy, x)}, {_GRADIENT_UNROLL}, {_ACTS[act]}>"
        f"(dy, x, {passed}, mean, partial, rows)",
        [
            (f"const {t}* dy", dy.p),
            (f"const {t}* x", x.p),
            *scales,
            ("const float* mean", n.p("saved_mean")),
            ("float* partial", partial),
            ("i64 rows", i64(x.rows)),
        ],
        (splits, block.chunks, 1),
        block.threads,
    )
    factors = None if dx is None else n.temporary(3 * x.channels * 4)
    kind, factors_text = ("norm_finish", "nullptr") if factors is None else ("norm_finish_factors", "factors")
    finish: Arguments = [
        ("const float* partial", partial),
        ("const float* gamma", n.p("gamma")),
        ("const float* invstd", n.p("saved_invstd")),
        ("float* dgamma", n.p("dgamma")),
        ("float* dbeta", n.p("dbeta")),
        *([] if factors is None else [("float* factors", factors)]),
        ("int splits", N(splits)),
        ("int C", N(x.channels)),
        ("i64 rows", i64(x.rows)),
    ]
    call = f"finish_gradients(partial, gamma, invstd, dgamma, dbeta, {factors_text}, splits, C, rows)"
    second = n.launch(f"{kind}__f32", "norm", call, finish, finish_grid(x.channels), FINISH_THREADS)
    if dx is None or factors is None:
        return [first, second]
    v = vector_of(dy, x, dx)
    block = rows_first(dx.pitch // v)
    third = n.launch(
        f"norm_bwd_apply__{_suffix((dy, x, dx), *more)}",
        "norm",
        f"apply_gradients<{t}, {s}, {_constants(block, v, dy, x, dx)}, {_GRADIENT_UNROLL}, {_ACTS[act]}>"
        f"(dy, x, {passed}, mean, factors, dx, rows)",
        [
            (f"const {t}* dy", dy.p),
            (f"const {t}* x", x.p),
            *scales,
            ("const float* mean", n.p("saved_mean")),
            ("const float* factors", factors),
            (f"{t}* dx", dx.p),
            ("i64 rows", i64(x.rows)),
        ],
        _apply_grid(x, block, _GRADIENT_UNROLL),
        block.threads,
    )
    return [first, second, third]


def s_name(scale: Matrix | None, x: Matrix) -> str:
    """The scale's type in a kernel's name, where it is not that of the activations."""
    return "" if scale is None or scale.dtype is x.dtype else scale.dtype.value
