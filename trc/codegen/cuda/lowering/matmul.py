"""The products of small fully connected layers in half precision, by our own kernels on the tensor cores.

Large ones, and those of float32 operands, are cuDNN's.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from trc.codegen.cuda.lowering.launch import Arg, Launch, N
from trc.codegen.cuda.lowering.view import MULTIPROCESSORS, Matrix, NodeView, ceil_div, lowering
from trc_runtime.schema.dtypes import DType

SMALL = 1 << 28
"""Multiplications and additions up to which a product is ours.

That many take the tensor cores of an H200 about a microsecond through mma.sync, less than the 3 to 4 microseconds that
a node costs on the critical path of a step: what counts is how many nodes there are (cuDNN takes two to three for a
product with a bias and an activation or a float32 result) and how soon all multiprocessors are busy. Beyond, cuDNN's
kernels for Hopper do twice as many a cycle.
"""

_LONGEST, _WIDEST = 1 << 12, 1 << 16
"""Terms of a sum, and rows and columns of a result, up to which it is ours: the blocks of a tile go through all of its
terms one slab after another."""

TILES = ((128, 64), (64, 64), (64, 32), (32, 64), (32, 32), (16, 32), (32, 16), (16, 16))
"""Rows and columns of the result that a block makes; of equally good ones the first is taken."""

_FIXED_COST = 16
"""What a block costs besides its operands, in rows of them."""

_WARPS = 8
_SHARED_BYTES = 48 << 10
_MOST_STAGES = 6
_HALF_BYTES = 2

ACTS = {"none": "NONE", "relu": "RELU", "relu6": "RELU6"}
"""The activations that a product is finished with, as kernels call them."""


@dataclass(frozen=True)
class Rows:
    """An operand as rows of all that a sample (or an output) has: `length` elements that count, `pitch` in memory."""

    matrix: Matrix
    count: int
    length: int
    pitch: int

    @property
    def is_whole(self) -> bool:
        """Whether only the end of a row is padding, if any."""
        return self.length == self.matrix.channels or self.length == self.pitch


def rows_of(m: Matrix) -> Rows:
    """A feature [N, H, W, C] or weights [out, 1, 1, in]."""
    pixels = prod(m.shape[1:-1])
    return Rows(m, m.shape[0], pixels * m.channels, pixels * m.pitch)


_OPERANDS = {
    "fc_fwd": ("x", "weight", "y"),
    "fc_bwd_data": ("dy", "weight", "dx"),
    "fc_bwd_weight": ("dy", "x", "dweight"),
}
"""The two factors and the result of each kind."""


def is_small(n: NodeView) -> bool:
    """Whether a fully connected layer's product is ours: half factors, no padding within rows, few operations."""
    left, right, result = (rows_of(n[role]) for role in _OPERANDS[n.kind])
    if not left.matrix.dtype.is_half or right.matrix.dtype is not left.matrix.dtype:
        return False
    wanted = DType.F32 if n.kind == "fc_bwd_weight" else left.matrix.dtype
    if result.matrix.dtype is not wanted or not all(r.is_whole for r in (left, right, result)):
        return False
    inner = left.count if n.kind == "fc_bwd_weight" else left.length
    small = inner <= _LONGEST and max(result.count, result.length) <= _WIDEST
    return small and result.count * result.length * inner <= SMALL


def act_of(n: NodeView) -> str:
    """The node's activation, `none` where it has none. CompileError for one that no kernel knows."""
    act = n.text("act", "none")
    if act not in ACTS:
        raise n.problem(f"act is one of {', '.join(ACTS)}, not '{act}'")
    return act


@dataclass(frozen=True)
class Tile:
    """How a product is cut: the tile of a block, K of a slab, warps that share it, and slabs in shared memory."""

    m: int
    n: int
    k: int
    splits: int
    stages: int

    @property
    def threads(self) -> int:
        """Threads of a block: a warp has 32 x 32 of the tile, or what there is."""
        return 32 * ceil_div(self.m, 32) * ceil_div(self.n, 32) * self.splits

    @property
    def name(self) -> str:
        """The tile as a part of a kernel's name."""
        return f"t{self.m}x{self.n}x{self.k}_w{self.splits}_s{self.stages}"


def tile_of(m: int, n: int, k: int) -> Tile:
    """The tile for a result of m x n.

    The tile is that with the least traffic of the busiest multiprocessor: operands come from the second-level cache, at
    a rate that a multiprocessor has for itself. The warps that it leaves share K, as far as there is K for them.
    """

    def cost(tile: tuple[int, int]) -> int:
        blocks = ceil_div(m, tile[0]) * ceil_div(n, tile[1])
        return ceil_div(blocks, MULTIPROCESSORS) * (sum(tile) + _FIXED_COST)

    rows, columns = min(TILES, key=cost)
    splits = _WARPS // (ceil_div(rows, 32) * ceil_div(columns, 32))
    while splits > 1 and (splits // 2) * 16 >= k:
        splits //= 2
    depth = max(16 * splits, 32)
    fitting = _SHARED_BYTES // ((rows + columns) * depth * _HALF_BYTES)
    return Tile(rows, columns, depth, splits, min(fitting, _MOST_STAGES, max(2, ceil_div(k, depth) + 1)))


def _operand(rows: Rows, pointer: str, count: str, k_inner: bool) -> str:
    flag = str(k_inner).lower()
    return f"Operand<{rows.matrix.c_type}, {rows.length}, {rows.pitch}, {flag}>{{{pointer}, {count}}}"


def _launch(
    n: NodeView, result: Rows, k: int, name: str, operands: tuple[str, str, str], finish: str,
    arguments: list[tuple[str, Arg]],
) -> list[Launch]:  # fmt: skip
    """A product whose result has `result.count` rows and, padding included, `result.pitch` columns.

    `operands` are the two factors and the number of terms in C++; `name` says what the instance depends on beside the
    tile and the type.
    """
    tile = tile_of(result.count, result.pitch, k)
    element = n[_OPERANDS[n.kind][0]]
    left, right, terms = operands
    call = (
        f"product<{element.c_type}, {tile.m}, {tile.n}, {tile.k}, {tile.splits}, {tile.stages}>"
        f"({left}, {right}, {terms}, {finish})"
    )
    grid = ceil_div(result.pitch, tile.n), ceil_div(result.count, tile.m), 1
    full = f"{n.kind}__{element.dtype.value}_{name}_{tile.name}"
    return [n.launch(full, "matmul", call, arguments, grid, tile.threads)]


@lowering("fc_fwd", when=is_small, any_pitch=True)
def fc_fwd(n: NodeView) -> list[Launch]:
    """Compute y = act(x weight^T + bias)."""
    x, weight, y = (rows_of(n[role]) for role in ("x", "weight", "y"))
    bias, act, t = n.get("bias"), act_of(n), y.matrix.c_type
    if x.length != weight.length or y.length != weight.count or x.count != y.count:
        raise n.problem(f"cannot multiply {x.count} x {x.length} and {weight.count} x {weight.length}")
    flag, passed = ("false", "nullptr") if bias is None else ("true", "bias")
    arguments: list[tuple[str, Arg]] = [
        (f"const {t}* x", x.matrix.p),
        (f"const {t}* weight", weight.matrix.p),
        *([] if bias is None else [("const float* bias", bias.p)]),
        (f"{t}* y", y.matrix.p),
        ("int rows", N(y.count)),
    ]
    words = [f"k{x.length}_p{x.pitch}_n{y.length}_p{y.pitch}", *(["bias"] if bias else []), *_word(act)]
    factors = _operand(x, "x", "rows", True), _operand(weight, "weight", str(weight.count), True), str(x.length)
    finish = f"StoreRows<{t}, {y.length}, {y.pitch}, {flag}, {ACTS[act]}>{{y, {passed}, rows}}"
    return _launch(n, y, x.length, "_".join(words), factors, finish, arguments)


@lowering("fc_bwd_data", when=is_small, any_pitch=True)
def fc_bwd_data(n: NodeView) -> list[Launch]:
    """Compute dx = dy weight, where the activation whose result was x lets it through."""
    dy, weight, dx = (rows_of(n[role]) for role in ("dy", "weight", "dx"))
    x, act, t = n.get("x"), act_of(n), dx.matrix.c_type
    if dy.length != weight.count or dx.length != weight.length or dx.count != dy.count:
        raise n.problem(f"cannot multiply {dy.count} x {dy.length} and {weight.count} x {weight.length}")
    if x is None:
        act = "none"
    elif (x.shape, x.pitch, x.dtype) != (dx.matrix.shape, dx.matrix.pitch, dx.matrix.dtype):
        raise n.problem(
            f"'{x.name}' is {x.dtype.value}{x.shape}, its gradient {dx.matrix.dtype.value}{dx.matrix.shape}"
        )
    arguments: list[tuple[str, Arg]] = [
        (f"const {t}* dy", dy.matrix.p),
        (f"const {t}* weight", weight.matrix.p),
        *([] if x is None else [(f"const {t}* x", x.p)]),
        (f"{t}* dx", dx.matrix.p),
        ("int rows", N(dx.count)),
    ]
    words = [f"k{dy.length}_p{dy.pitch}_n{dx.length}_p{dx.pitch}", *(["of"] if x else []), *_word(act)]
    factors = _operand(dy, "dy", "rows", True), _operand(weight, "weight", str(weight.count), False), str(dy.length)
    finish = f"StoreMasked<{t}, {dx.length}, {dx.pitch}, {ACTS[act]}>{{dx, {'x' if x else 'nullptr'}, rows}}"
    return _launch(n, dx, dy.length, "_".join(words), factors, finish, arguments)


@lowering("fc_bwd_weight", when=is_small, any_pitch=True)
def fc_bwd_weight(n: NodeView) -> list[Launch]:
    """Compute dweight = dy^T x in float32."""
    dy, x, dweight = (rows_of(n[role]) for role in ("dy", "x", "dweight"))
    t = dy.matrix.c_type
    if dy.length != dweight.count or x.length != dweight.length or dy.count != x.count:
        raise n.problem(f"cannot multiply {dy.length} x {dy.count} and {x.count} x {x.length}")
    arguments: list[tuple[str, Arg]] = [
        (f"const {t}* dy", dy.matrix.p),
        (f"const {t}* x", x.matrix.p),
        ("float* dweight", dweight.matrix.p),
        ("int rows", N(dy.count)),
    ]
    words = f"m{dy.length}_p{dy.pitch}_n{x.length}_p{x.pitch}"
    factors = _operand(dy, "dy", "rows", False), _operand(x, "x", "rows", False), "rows"
    finish = f"StoreSums<{dweight.length}>{{dweight, {dweight.count}}}"
    return _launch(n, dweight, dy.count, words, factors, finish, arguments)


def _word(act: str) -> list[str]:
    return [] if act == "none" else [act]
