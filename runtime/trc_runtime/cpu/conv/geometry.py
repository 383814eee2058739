"""What a convolution reads and writes, as jobs that are the same for the forward pass and the data gradient.

A job slides a dense window over a *frame* (a rectangle of the source, with zeros where it lies outside) and writes
one result a position. The forward pass is one job with the layer's stride. The data gradient with stride t is t * t
jobs of step 1: the pixels of dx whose coordinates have one remainder modulo t meet every t-th tap of the kernel only,
in reversed order. So no dilated copy of dy is made and nothing is multiplied by zeros that stand for a stride.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trc_runtime.cpu.bind import Array, BoundNode


@dataclass(frozen=True)
class Geometry:
    """Sizes of a convolution: x (n, h, w, c), weight (k, r, s, c / groups), y (n, p, q, k)."""

    n: int
    h: int
    w: int
    c: int
    k: int
    r: int
    s: int
    stride: int
    padding: int
    groups: int

    @property
    def p(self) -> int:
        """Height of the output."""
        return (self.h + 2 * self.padding - self.r) // self.stride + 1

    @property
    def q(self) -> int:
        """Width of the output."""
        return (self.w + 2 * self.padding - self.s) // self.stride + 1

    @property
    def depthwise(self) -> bool:
        """Whether every output channel sees one input channel."""
        return self.groups == self.c and self.groups > 1

    @property
    def y_shape(self) -> tuple[int, int, int, int]:
        """Shape of the output."""
        return self.n, self.p, self.q, self.k


@dataclass(frozen=True)
class Frame:
    """A rectangle in the coordinates of the source; may reach beyond it on all sides."""

    top: int
    left: int
    height: int
    width: int

    def inside(self, height: int, width: int) -> tuple[slice, slice]:
        """The part of a source of this size that the frame covers (may be empty)."""
        return (
            slice(max(0, self.top), max(0, min(height, self.top + self.height))),
            slice(max(0, self.left), max(0, min(width, self.left + self.width))),
        )


@dataclass(frozen=True)
class Job:
    """Windows over a frame.

    `taps` selects the kernel's rows and columns in the order in which the window meets them and `window` is their
    number. Window (i, j) of the `counts` begins at frame pixel start + step * (i, j); its result belongs at
    target pixel origin + spacing * (i, j). An empty window gives zeros.
    """

    taps: tuple[slice, slice]
    window: tuple[int, int]
    start: tuple[int, int]
    step: int
    origin: tuple[int, int]
    spacing: int
    counts: tuple[int, int]

    def target(self, array: Array) -> Array:
        """The pixels of a target (n, height, width, channels) that this job writes."""
        return array[:, self.origin[0] :: self.spacing, self.origin[1] :: self.spacing]


@dataclass(frozen=True)
class Sliding:
    """All jobs of a pass and their common frame."""

    frame: Frame
    jobs: tuple[Job, ...]


def forward(g: Geometry) -> Sliding:
    """The forward pass: x is the source. The weight gradient visits the same windows."""
    frame = Frame(-g.padding, -g.padding, (g.p - 1) * g.stride + g.r, (g.q - 1) * g.stride + g.s)
    everything = slice(None)
    return Sliding(frame, (Job((everything, everything), (g.r, g.s), (0, 0), g.stride, (0, 0), 1, (g.p, g.q)),))


def data_gradient(g: Geometry) -> Sliding:
    """The data gradient: dy is the source, dx the target."""
    rows = _classes(g.h, g.r, g.stride, g.padding)
    columns = _classes(g.w, g.s, g.stride, g.padding)
    top, height = _extent(rows)
    left, width = _extent(columns)
    jobs = tuple(
        Job(
            (a.taps, b.taps),
            (a.window, b.window),
            (a.first - top, b.first - left),
            1,
            (a.origin, b.origin),
            g.stride,
            (a.count, b.count),
        )
        for a in rows
        for b in columns
    )
    return Sliding(Frame(top, left, height, width), jobs)


@dataclass(frozen=True)
class _Class:
    """Pixels of one axis with the same remainder: `origin`, origin + stride, ... (`count` of them)."""

    origin: int
    count: int
    taps: slice
    window: int
    first: int


def _classes(size: int, kernel: int, stride: int, padding: int) -> list[_Class]:
    """Pixel h gets tap t from output pixel (h + padding - t) / stride wherever that is whole."""
    classes: list[_Class] = []
    for origin in range(min(stride, size)):
        remainder = (origin + padding) % stride
        quotient = (origin + padding) // stride
        window = len(range(remainder, kernel, stride))
        last = remainder + stride * (window - 1)
        taps = slice(last, None, -stride) if window else slice(0, 0)
        first = quotient - max(0, window - 1)
        classes.append(_Class(origin, (size - 1 - origin) // stride + 1, taps, window, first))
    return classes


def _extent(classes: list[_Class]) -> tuple[int, int]:
    seen = [c for c in classes if c.window]
    if not seen:
        return 0, 0
    first = min(c.first for c in seen)
    return first, max(c.first + c.window - 1 + c.count for c in seen) - first


def geometry(node: BoundNode, x: tuple[int, ...], weight: tuple[int, ...], y: tuple[int, ...]) -> Geometry:
    """The sizes from a node's operands. ValueError where shapes and parameters contradict each other."""
    stride, padding, groups = (int(node.number(name)) for name in ("stride", "padding", "groups"))
    if stride < 1 or padding < 0 or groups < 1:
        raise node.problem(f"stride {stride}, padding {padding} and groups {groups} make no convolution")
    if len(x) != 4 or len(weight) != 4 or len(y) != 4:
        raise node.problem(f"takes arrays of four dimensions, not {x}, {weight}, {y}")
    g = Geometry(*x, weight[0], weight[1], weight[2], stride, padding, groups)
    if g.c % groups or g.k % groups or weight[3] * groups != g.c:
        raise node.problem(f"weights {weight} in {groups} groups do not fit {g.c} input channels")
    if g.p < 1 or g.q < 1 or g.y_shape != y:
        raise node.problem(f"input {x}, weights {weight}, stride {stride}, padding {padding} do not give {y}")
    return g
