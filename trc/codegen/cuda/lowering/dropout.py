"""Dropout."""

from __future__ import annotations

from math import ceil, prod

from trc.codegen.cuda.lowering.elementwise import one_each
from trc.codegen.cuda.lowering.launch import Arg, F, I, Launch, N
from trc.codegen.cuda.lowering.view import Matrix, NodeView, i64, lowering

_COUNTER = 4
"""Numbers of a counter."""

_WORD_BITS = 24
"""Bits of a word that make a uniform number."""


def _rate(n: NodeView) -> tuple[float, float]:
    p = n.number("p")
    if not 0 <= p <= 1:
        raise n.problem(f"p must be between 0 and 1, not {p}")
    return p, 1.0 / (1.0 - p) if p < 1 else 0.0


def _vector(*matrices: Matrix) -> int:
    """Elements a thread where nothing is padded and samples are made of whole accesses, else 0."""
    first = matrices[0]
    v = 16 // first.dtype.itemsize
    dense = all(m.dense for m in matrices)
    return v if dense and prod(first.shape[1:]) % v == 0 else 0


def _signed(word: int) -> int:
    """A 32-bit word as the signed integer with its bits."""
    return word - (1 << 32) if word >= 1 << 31 else word


@lowering("dropout_fwd", any_pitch=True)
def dropout_fwd(n: NodeView) -> list[Launch]:
    """Draw, scale, and keep the mask if backward will ask."""
    x, y, mask = n["x"], n["y"], n.get("mask")
    p, scale = _rate(n)
    samples, row = x.shape[0], prod(x.shape[1:])
    t, flag, pointer = x.c_type, "false" if mask is None else "true", "nullptr" if mask is None else "mask"
    tensors: list[tuple[str, Arg]] = [(f"const {t}* x", x.p), (f"{t}* y", y.p)]
    if mask is not None:
        tensors.append(("i8* mask", mask.p))
    more: list[tuple[str, Arg]] = [
        ("int stream", N(_signed(n.integer("stream")))),
        ("i64 threshold", I(ceil(p * 2**_WORD_BITS) << (32 - _WORD_BITS))),
        ("float scale", F(scale)),
    ]
    scalars: list[tuple[str, Arg]] = [("const u32* seed", n.p("seed")), ("const int* iteration", n.p("iteration"))]
    suffix = "" if mask is None else "_mask"
    v = _vector(x, y, *([] if mask is None else [mask]))
    if v:
        sizes: list[tuple[str, Arg]] = [("int samples", N(samples)), ("int row", N(row))]
        name, grid = f"dropout_fwd__{x.dtype.value}{suffix}", one_each(x.elements // v)
        call = f"dropout<{t}, {v}, {flag}>(x, y, {pointer}, seed, iteration, samples, row, stream, threshold, scale)"
    else:
        pm = 1 if mask is None else mask.pitch
        sizes = [("int samples", N(samples)), ("int cells", N(x.rows // samples))]
        name = f"dropout_fwd__{x.dtype.value}_c{x.channels}_p{x.pitch}_p{y.pitch}{suffix}"
        grid = one_each(x.rows * max(y.pitch, pm))
        call = (
            f"dropout_rows<{t}, {x.channels}, {x.pitch}, {y.pitch}, {pm}, {flag}>"
            f"(x, y, {pointer}, seed, iteration, samples, cells, stream, threshold, scale)"
        )
    return [n.launch(name, "dropout", call, [*tensors, *scalars, *sizes, *more], grid, 256)]


@lowering("dropout_bwd", any_pitch=True)
def dropout_bwd(n: NodeView) -> list[Launch]:
    """Scale where the mask is set."""
    dy, mask, dx = n["dy"], n["mask"], n["dx"]
    _, scale = _rate(n)
    t = dy.c_type
    tensors: list[tuple[str, Arg]] = [
        (f"const {t}* dy", dy.p),
        ("const i8* mask", mask.p),
        (f"{t}* dx", dx.p),
    ]
    v = _vector(dy, mask, dx)
    if v:
        arguments = [*tensors, ("i64 n", i64(dy.elements)), ("float scale", F(scale))]
        call = f"dropout_backward<{t}, {v}>(dy, mask, dx, n, scale)"
        return [n.launch(f"dropout_bwd__{dy.dtype.value}", "dropout", call, arguments, one_each(dy.elements // v), 256)]
    arguments = [*tensors, ("i64 rows", i64(dy.rows)), ("float scale", F(scale))]
    name = f"dropout_bwd__{dy.dtype.value}_c{dy.channels}_p{dy.pitch}_p{dx.pitch}"
    call = f"dropout_backward_rows<{t}, {dy.channels}, {dy.pitch}, {mask.pitch}, {dx.pitch}>(dy, mask, dx, rows, scale)"
    return [n.launch(name, "dropout", call, arguments, one_each(dx.elements), 256)]
