"""Activations and sums of two arrays."""

from __future__ import annotations

from collections.abc import Callable

from trc.codegen.cuda.lowering.launch import F, Launch
from trc.codegen.cuda.lowering.view import MULTIPROCESSORS, Matrix, NodeView, ceil_div, i64, lowering
from trc_runtime.schema.dtypes import DType

_UNROLL_ONE, _UNROLL_TWO = 4, 2
"""Vectors that a thread has in flight of each operand, with one operand and with two."""

_SHORT_BLOCK, _LONG_BLOCK = 64, 256


def flat_grid(vectors: int, unroll: int) -> tuple[tuple[int, int, int], int]:
    """Grid and block for `vectors` accesses, `unroll` a thread; small arrays take small blocks, so that they spread."""
    threads = _LONG_BLOCK if vectors >= MULTIPROCESSORS * _LONG_BLOCK * unroll else _SHORT_BLOCK
    return (max(1, ceil_div(vectors, threads * unroll)), 1, 1), threads


def wide(dtype: DType) -> int:
    """Elements in 16 bytes."""
    return 16 // dtype.itemsize


def flat(*matrices: Matrix) -> bool:
    """Whether arrays have no padding and one layout, so that they may be taken as one run of elements."""
    return all(m.dense and m.shape == matrices[0].shape for m in matrices)


def _map1(
    n: NodeView, x: Matrix, y: Matrix, op: str, factor: str | None = None, kind: str | None = None
) -> list[Launch]:
    kind = kind or n.kind
    n.same(x, y)
    functor = f"{op}{{{factor or ''}}}"
    extra = [] if factor is None else [(f"float {factor}", F(n.number(factor)))]
    t = x.c_type
    if flat(x, y):
        grid, threads = flat_grid(x.elements // wide(x.dtype), _UNROLL_ONE)
        name, call = f"{kind}__{x.dtype.value}", f"map1<{t}, {wide(x.dtype)}, {_UNROLL_ONE}>(x, y, n, {functor})"
        arguments = [(f"const {t}* x", x.p), (f"{t}* y", y.p), ("i64 n", i64(x.elements)), *extra]
        return [n.launch(name, "elementwise", call, arguments, grid, threads, _LONG_BLOCK)]
    name = f"{kind}__{x.dtype.value}_c{x.channels}_p{x.pitch}_p{y.pitch}"
    call = f"map1_rows<{t}, {x.channels}, {x.pitch}, {y.pitch}>(x, y, rows, {functor})"
    arguments = [(f"const {t}* x", x.p), (f"{t}* y", y.p), ("i64 rows", i64(x.rows)), *extra]
    return [n.launch(name, "elementwise", call, arguments, one_each(y.elements), _LONG_BLOCK)]


def _map2(
    n: NodeView, a: Matrix, b: Matrix, y: Matrix, op: str, factor: str | None = None, kind: str | None = None
) -> list[Launch]:
    kind = kind or n.kind
    n.same(a, b, y)
    functor = f"{op}{{{factor or ''}}}"
    extra = [] if factor is None else [(f"float {factor}", F(n.number(factor)))]
    t = a.c_type
    if flat(a, b, y):
        grid, threads = flat_grid(a.elements // wide(a.dtype), _UNROLL_TWO)
        name = f"{kind}__{a.dtype.value}"
        call = f"map2<{t}, {wide(a.dtype)}, {_UNROLL_TWO}>(a, b, y, n, {functor})"
        arguments = [(f"const {t}* a", a.p), (f"const {t}* b", b.p), (f"{t}* y", y.p), ("i64 n", i64(a.elements))]
        return [n.launch(name, "elementwise", call, arguments + extra, grid, threads, _LONG_BLOCK)]
    name = f"{kind}__{a.dtype.value}_c{a.channels}_p{a.pitch}_p{b.pitch}_p{y.pitch}"
    call = f"map2_rows<{t}, {a.channels}, {a.pitch}, {b.pitch}, {y.pitch}>(a, b, y, rows, {functor})"
    arguments = [(f"const {t}* a", a.p), (f"const {t}* b", b.p), (f"{t}* y", y.p), ("i64 rows", i64(a.rows))]
    return [n.launch(name, "elementwise", call, arguments + extra, one_each(y.elements), _LONG_BLOCK)]


def one_each(elements: int) -> tuple[int, int, int]:
    """The grid of blocks of 256 in which each thread has one element (or group of elements)."""
    return max(1, ceil_div(elements, _LONG_BLOCK)), 1, 1


_RECTIFIERS = {"relu": "Relu", "relu6": "Relu6"}


def activate_in_place(n: NodeView, y: Matrix, act: str) -> list[Launch]:
    """Apply a node's rectifier, if any, to its result: the kernel of the activation's own kind."""
    return [] if act == "none" else _map1(n, y, y, _RECTIFIERS[act], kind=f"{act}_fwd")


def mask_in_place(n: NodeView, dx: Matrix, x: Matrix, act: str) -> list[Launch]:
    """Let of a gradient pass what the rectifier with the result x let pass."""
    return [] if act == "none" else _map2(n, dx, x, dx, f"{_RECTIFIERS[act]}Bwd", kind=f"{act}_bwd")


def _forward(op: str, factor: str | None = None) -> Callable[[NodeView], list[Launch]]:
    return lambda n: _map1(n, n["x"], n["y"], op, factor)


def _backward(op: str, saved: str = "y", factor: str | None = None) -> Callable[[NodeView], list[Launch]]:
    return lambda n: _map2(n, n["dy"], n[saved], n["dx"], op, factor)


for _name, _op, _saved, _factor in (
    ("relu", "Relu", "y", None),
    ("relu6", "Relu6", "y", None),
    ("leaky_relu", "LeakyRelu", "y", "slope"),
    ("tanh", "Tanh", "y", None),
    ("sigmoid", "Sigmoid", "y", None),
    ("silu", "Silu", "x", None),
    ("hardswish", "Hardswish", "x", None),
    ("elu", "Elu", "y", "alpha"),
):
    lowering(f"{_name}_fwd", any_pitch=True)(_forward(_op, _factor))
    lowering(f"{_name}_bwd", any_pitch=True)(_backward(f"{_op}Bwd", _saved, _factor))


@lowering("add_fwd", any_pitch=True)
def add_fwd(n: NodeView) -> list[Launch]:
    """Compute y = a + b."""
    return _map2(n, n["a"], n["b"], n["y"], "Add")
