"""Optimizers over ranges of regions."""

from __future__ import annotations

from trc.codegen.cuda.lowering.launch import Arg, Launch
from trc.codegen.cuda.lowering.view import NodeView, ceil_div, i64, lowering
from trc_runtime.schema.dtypes import DType
from trc_runtime.schema.kinds import Access

_DECAYS = {"none": "NO_DECAY", "l2": "L2", "decoupled": "DECOUPLED"}
_THREADS, _ELEMENTS = 256, 4


def _update(
    n: NodeView, function: str, moments: tuple[str, ...], scalars: dict[str, str], flags: str = "", suffix: str = ""
) -> list[Launch]:
    """One launch over the ranges; `scalars` maps a kernel's parameters to roles of scalars."""
    spans = n.ranges(Access.READ) + n.ranges(Access.UPDATE)
    if len(spans) != 2 + len(moments):
        raise n.problem(f"takes {2 + len(moments)} ranges, not {len(spans)}")
    if len({s.elements for s in spans}) != 1 or any(s.dtype is not DType.F32 for s in spans):
        sizes = ", ".join(f"{s.elements} {s.dtype.value}" for s in spans)
        raise n.problem(f"the ranges are {sizes}, and must be float32 numbers, equally many")
    decay = n.text("decay")
    if decay not in _DECAYS:
        raise n.problem(f"decay is one of {', '.join(_DECAYS)}, not '{decay}'")
    names = ("w", *moments)
    arguments: list[tuple[str, Arg]] = [
        ("const float* g", spans[0].p),
        *((f"float* {name}", span.p) for name, span in zip(names, spans[1:], strict=True)),
        ("i64 n", i64(spans[0].elements)),
        *((f"const float* {name}", n.p(role)) for name, role in scalars.items()),
        ("const int* has_nan", n.p("has_nan")),
    ]
    passed = ", ".join(text.rsplit(" ", 1)[1] for text, _ in arguments)
    grid = max(1, ceil_div(spans[0].elements, _THREADS * _ELEMENTS)), 1, 1
    call = f"{function}<{_DECAYS[decay]}{flags}>({passed})"
    return [n.launch(f"{n.kind}__f32_{decay}{suffix}", "optimizer", call, arguments, grid, _THREADS)]


@lowering("sgd_update")
def sgd_update(n: NodeView) -> list[Launch]:
    """Compute w -= lr g'."""
    return _update(n, "sgd", (), {name: name for name in ("lr", "weight_decay", "scaling")})


@lowering("momentum_update")
def momentum_update(n: NodeView) -> list[Launch]:
    """SGD with momentum, Nesterov's or not."""
    nesterov = n.flag("nesterov")
    scalars = {name: name for name in ("lr", "beta1", "weight_decay", "scaling")}
    return _update(n, "momentum", ("m",), scalars, f", {str(nesterov).lower()}", "_nesterov" if nesterov else "")


@lowering("adam_update")
def adam_update(n: NodeView) -> list[Launch]:
    """Adam and AdamW."""
    scalars = {name: name for name in ("lr", "beta1", "beta2", "eps", "weight_decay")}
    scalars |= {"correction1": "bias_correction1", "correction2": "bias_correction2", "scaling": "scaling"}
    return _update(n, "adam", ("m", "v"), scalars)
