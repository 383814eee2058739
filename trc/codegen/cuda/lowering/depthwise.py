"""Depthwise convolutions, the one convolution that is not cuDNN's."""

from __future__ import annotations

from trc.codegen.cuda.lowering.dense import FINISH_THREADS, SUM_BLOCKS, finish_grid
from trc.codegen.cuda.lowering.launch import Arg, Launch, N
from trc.codegen.cuda.lowering.view import (
    Matrix,
    NodeView,
    Rectangle,
    ceil_div,
    clamp,
    columns_first,
    i64,
    lowering,
    pitches,
    vector_of,
)

_FORWARD_STRIP, _SHORT_STRIP = 4, 2
_SPAN = 12
"""Cells of the input under a strip, above which strips are short: all their loads are in flight at once."""

_WEIGHT_STRIP = 4
_WEIGHT_SUMS = 48
"""Sums a thread keeps in the first stage of the weight's gradient, at most."""

_WEIGHT_TILES = 4
"""Strips a thread adds at least, where there are enough."""

_RESIDENT = 2
"""Blocks a multiprocessor: 128 registers a thread. Left to itself the compiler aims at more and spills."""

_MOST_CELLS = 1 << 31
_SHARED_BYTES = 48 << 10


def is_depthwise(n: NodeView) -> bool:
    """Whether a convolution's node has one group a channel and as many results as inputs."""
    groups = n.node.params.get("groups", 1)
    weight = n["dweight"] if "dweight" in n else n["weight"]
    return groups == weight.shape[0] and weight.shape[3] == 1 and groups != 1


def _sizes(large: Matrix, small: Matrix) -> list[tuple[str, Arg]]:
    return [
        ("int batch", N(large.shape[0])),
        ("int height", N(large.shape[1])),
        ("int width", N(large.shape[2])),
        ("int out_height", N(small.shape[1])),
        ("int out_width", N(small.shape[2])),
    ]


_PASSED = "batch, height, width, out_height, out_width"


def _check(n: NodeView, x: Matrix, y: Matrix) -> None:
    n.same_channels(x, y)
    for m in (x, y):
        if m.rows >= _MOST_CELLS:
            raise n.problem(f"'{m.name}' has {m.rows} cells, more than {_MOST_CELLS - 1}")


def _name(n: NodeView, x: Matrix, y: Matrix, kernel: int) -> str:
    stride, padding = n.integer("stride"), n.integer("padding")
    return f"{x.dtype.value}_c{x.channels}_{pitches(x, y)}_k{kernel}_s{stride}_q{padding}"


def _block(n: NodeView, result: Matrix, v: int, kernel: int) -> Rectangle:
    """The block for a result whose threads do `v` channels each."""
    block = columns_first(result.pitch // v)
    if kernel * kernel * block.wide * v * 4 > _SHARED_BYTES:
        raise n.problem(f"a window of {kernel} is too large for the depthwise kernels")
    return block


def _strips(m: Matrix, strip: int) -> int:
    """Strips of an array."""
    return m.shape[0] * m.shape[1] * ceil_div(m.shape[2], strip)


@lowering("conv_fwd", when=is_depthwise, any_pitch=True)
def depthwise_fwd(n: NodeView) -> list[Launch]:
    """The convolution, with its bias if it has one."""
    x, weight, y, bias = n["x"], n["weight"], n["y"], n.get("bias")
    _check(n, x, y)
    kernel, t, v = weight.shape[1], x.c_type, vector_of(x, y)
    block = _block(n, y, v, kernel)
    strip = _FORWARD_STRIP if (_FORWARD_STRIP - 1) * n.integer("stride") + kernel <= _SPAN else _SHORT_STRIP
    arguments: list[tuple[str, Arg]] = [(f"const {t}* x", x.p), (f"const {t}* weight", weight.p)]
    if bias is not None:
        arguments.append(("const float* bias", bias.p))
    arguments += [(f"{t}* y", y.p), *_sizes(x, y)]
    constants = (
        f"{x.channels}, {x.pitch}, {y.pitch}, {v}, {block.wide}, {block.tall}, {kernel}, {n.integer('stride')}, "
        f"{n.integer('padding')}, {strip}, {'false' if bias is None else 'true'}"
    )
    pointer = "nullptr" if bias is None else "bias"
    return [
        n.launch(
            f"depthwise_fwd__{_name(n, x, y, kernel)}" + ("" if bias is None else "_bias"),
            "depthwise",
            f"depthwise<{t}, {constants}>(x, weight, {pointer}, y, {_PASSED})",
            arguments,
            (ceil_div(_strips(y, strip), block.tall), block.chunks, 1),
            block.threads,
            resident=_RESIDENT,
        )
    ]


@lowering("conv_bwd_data", when=is_depthwise, any_pitch=True)
def depthwise_bwd_data(n: NodeView) -> list[Launch]:
    """The gradient of the input."""
    dy, weight, dx = n["dy"], n["weight"], n["dx"]
    _check(n, dx, dy)
    kernel, stride, t, v = weight.shape[1], n.integer("stride"), dy.c_type, vector_of(dx, dy)
    strip = stride * ceil_div(_FORWARD_STRIP, stride)
    block = _block(n, dx, v, kernel)
    constants = (
        f"{dx.channels}, {dx.pitch}, {dy.pitch}, {v}, {block.wide}, {block.tall}, {kernel}, {stride}, "
        f"{n.integer('padding')}, {strip}"
    )
    return [
        n.launch(
            f"depthwise_bwd_data__{_name(n, dx, dy, kernel)}",
            "depthwise",
            f"depthwise_backward<{t}, {constants}>(dy, weight, dx, {_PASSED})",
            [
                (f"const {t}* dy", dy.p),
                (f"const {t}* weight", weight.p),
                (f"{t}* dx", dx.p),
                *_sizes(dx, dy),
            ],
            (ceil_div(_strips(dx, strip), block.tall), block.chunks, 1),
            block.threads,
            resident=_RESIDENT,
        )
    ]


@lowering("conv_bwd_weight", when=is_depthwise, any_pitch=True)
def depthwise_bwd_weight(n: NodeView) -> list[Launch]:
    """The gradient of the weight, in two stages."""
    dy, x, dweight = n["dy"], n["x"], n["dweight"]
    _check(n, x, dy)
    kernel, t, w = dweight.shape[1], x.c_type, dweight.c_type
    # Narrow vectors leave room for the sums of a whole window; where even those are too many, blocks share its rows.
    v = min(vector_of(x, dy), 4)
    while v > 1 and kernel * kernel * v > _WEIGHT_SUMS:
        v //= 2
    rows = min(kernel, max(1, _WEIGHT_SUMS // (kernel * v)))
    block = columns_first(min(x.pitch, dy.pitch) // v)
    strips = _strips(dy, _WEIGHT_STRIP)
    splits = clamp(SUM_BLOCKS // block.chunks, 1, max(1, ceil_div(strips, block.tall * _WEIGHT_TILES)))
    places = kernel * kernel
    partial = n.temporary(splits * places * x.channels * 4)
    constants = (
        f"{x.channels}, {x.pitch}, {dy.pitch}, {v}, {block.wide}, {block.tall}, {kernel}, {n.integer('stride')}, "
        f"{n.integer('padding')}, {_WEIGHT_STRIP}, {rows}"
    )
    first = n.launch(
        f"depthwise_bwd_weight__{_name(n, x, dy, kernel)}",
        "depthwise",
        f"depthwise_weight<{t}, {constants}>(dy, x, partial, {_PASSED}, strips)",
        [
            (f"const {t}* dy", dy.p),
            (f"const {t}* x", x.p),
            ("float* partial", partial),
            *_sizes(x, dy),
            ("i64 strips", i64(strips)),
        ],
        (splits, block.chunks, ceil_div(kernel, rows)),
        block.threads,
        resident=_RESIDENT,
    )
    second = n.launch(
        f"depthwise_weight_finish__{dweight.dtype.value}",
        "depthwise",
        f"depthwise_weight_finish<{w}>(partial, dweight, splits, C, places)",
        [
            ("const float* partial", partial),
            (f"{w}* dweight", dweight.p),
            ("int splits", N(splits)),
            ("int C", N(x.channels)),
            ("int places", N(places)),
        ],
        finish_grid(x.channels * places),
        FINISH_THREADS,
    )
    return [first, second]
