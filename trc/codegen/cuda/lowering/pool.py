"""Pools and means over whole maps."""

from __future__ import annotations

from trc.codegen.cuda.lowering.elementwise import one_each
from trc.codegen.cuda.lowering.launch import Arg, Launch, N
from trc.codegen.cuda.lowering.view import Matrix, NodeView, columns_first, lowering, pitches, vector_of

_MEAN_UNROLL = 4
_RESIDENT = 4
"""Blocks a multiprocessor: 64 registers a thread. Left to itself the compiler aims at more and spills."""

_MOST_CELLS = 1 << 31
"""Kernels number the cells of an array with 32 bits."""

_MOST_MEAN = 1 << 30
"""Cells of a map, up to which those that a thread of the mean looks at can be numbered with 32 bits."""


def _window(n: NodeView) -> tuple[int, int, int]:
    return n.integer("kernel"), n.integer("stride"), n.integer("padding")


def _launch(
    n: NodeView,
    function: str,
    small: Matrix,
    large: Matrix,
    each: Matrix,
    tensors: list[tuple[str, Arg]],
    mask: Matrix | None = None,
) -> list[Launch]:
    """A launch with a thread a vector of `each`; `small` is the pooled side, `large` the other."""
    n.same_channels(large, small)
    if each.rows >= _MOST_CELLS:
        raise n.problem(f"'{each.name}' has {each.rows} cells, more than {_MOST_CELLS - 1}")
    kernel, stride, padding = _window(n)
    v, t = vector_of(large, small), each.c_type
    sizes: list[tuple[str, Arg]] = [
        ("int batch", N(large.shape[0])),
        ("int height", N(large.shape[1])),
        ("int width", N(large.shape[2])),
        ("int out_height", N(small.shape[1])),
        ("int out_width", N(small.shape[2])),
    ]
    constants = f"{each.channels}, {large.pitch}, {small.pitch}"
    flag = ""
    names = [text.rsplit(" ", 1)[1] for text, _ in tensors]
    if function.startswith("max_pool"):
        constants += f", {small.pitch if mask is None else mask.pitch}"
    if function == "max_pool":
        flag = ", true" if "mask" in names else ", false"
        if "mask" not in names:
            names.append("nullptr")
    passed = ", ".join((*names, *(text.rsplit(" ", 1)[1] for text, _ in sizes)))
    return [
        n.launch(
            f"{n.kind}__{each.dtype.value}_c{each.channels}_{pitches(large, small)}_k{kernel}_s{stride}_q{padding}"
            + ("_mask" if flag == ", true" else ""),
            "pool",
            f"{function}<{t}, {constants}, {v}, {kernel}, {stride}, {padding}{flag}>({passed})",
            [*tensors, *sizes],
            one_each(each.elements // v),
            256,
            resident=_RESIDENT,
        )
    ]


@lowering("max_pool_fwd", any_pitch=True)
def max_pool_fwd(n: NodeView) -> list[Launch]:
    """The maxima, and where they were if backward will ask."""
    x, y, mask = n["x"], n["y"], n.get("mask")
    tensors: list[tuple[str, Arg]] = [(f"const {x.c_type}* x", x.p), (f"{x.c_type}* y", y.p)]
    if mask is not None:
        tensors.append(("i8* mask", mask.p))
    return _launch(n, "max_pool", y, x, y, tensors, mask)


@lowering("max_pool_bwd", any_pitch=True)
def max_pool_bwd(n: NodeView) -> list[Launch]:
    """Each gradient to the cell of its maximum."""
    dy, mask, dx = n["dy"], n["mask"], n["dx"]
    tensors: list[tuple[str, Arg]] = [
        (f"const {dy.c_type}* dy", dy.p),
        ("const i8* mask", mask.p),
        (f"{dx.c_type}* dx", dx.p),
    ]
    return _launch(n, "max_pool_backward", dy, dx, dx, tensors, mask)


@lowering("avg_pool_fwd", any_pitch=True)
def avg_pool_fwd(n: NodeView) -> list[Launch]:
    """The mean of each window."""
    x, y = n["x"], n["y"]
    return _launch(n, "avg_pool", y, x, y, [(f"const {x.c_type}* x", x.p), (f"{x.c_type}* y", y.p)])


@lowering("avg_pool_bwd", any_pitch=True)
def avg_pool_bwd(n: NodeView) -> list[Launch]:
    """Each gradient to the cells of its window."""
    dy, dx = n["dy"], n["dx"]
    tensors: list[tuple[str, Arg]] = [(f"const {dy.c_type}* dy", dy.p), (f"{dx.c_type}* dx", dx.p)]
    return _launch(n, "avg_pool_backward", dy, dx, dx, tensors)


@lowering("gap_fwd", any_pitch=True)
def gap_fwd(n: NodeView) -> list[Launch]:
    """The mean of each map."""
    x, y = n["x"], n["y"]
    n.same_channels(x, y)
    v, t = vector_of(x, y), x.c_type
    cells = x.shape[1] * x.shape[2]
    if cells > _MOST_MEAN:
        raise n.problem(f"a map of '{x.name}' has {cells} cells, more than {_MOST_MEAN}")
    block = columns_first(y.pitch // v)
    return [
        n.launch(
            f"gap_fwd__{x.dtype.value}_c{x.channels}_{pitches(x, y)}",
            "pool",
            f"global_mean<{t}, {x.channels}, {x.pitch}, {y.pitch}, {v}, {block.wide}, {block.tall}, {_MEAN_UNROLL}>"
            "(x, y, cells)",
            [(f"const {t}* x", x.p), (f"{t}* y", y.p), ("int cells", N(cells))],
            (x.shape[0], block.chunks, 1),
            block.threads,
        )
    ]


@lowering("gap_bwd", any_pitch=True)
def gap_bwd(n: NodeView) -> list[Launch]:
    """Each gradient to all cells of its map."""
    dy, dx = n["dy"], n["dx"]
    n.same_channels(dx, dy)
    v, t = vector_of(dx, dy), dx.c_type
    if dx.rows >= _MOST_CELLS:
        raise n.problem(f"'{dx.name}' has {dx.rows} cells, more than {_MOST_CELLS - 1}")
    return [
        n.launch(
            f"gap_bwd__{dx.dtype.value}_c{dx.channels}_{pitches(dx, dy)}",
            "pool",
            f"spread_mean<{t}, {dx.channels}, {dx.pitch}, {dy.pitch}, {v}>(dy, dx, batch, cells)",
            [
                (f"const {t}* dy", dy.p),
                (f"{t}* dx", dx.p),
                ("int batch", N(dx.shape[0])),
                ("int cells", N(dx.shape[1] * dx.shape[2])),
            ],
            one_each(dx.elements // v),
            256,
        )
    ]
