"""Softmax cross entropy."""

from __future__ import annotations

from trc.codegen.cuda.lowering.elementwise import one_each
from trc.codegen.cuda.lowering.launch import Arg, F, Launch, N
from trc.codegen.cuda.lowering.view import NodeView, ceil_div, lowering

_ONE_CLASSES, _WARP_CLASSES = 32, 1024
"""Classes up to which a thread does a row, and a warp."""

_WHOLE_SAMPLES = 1024
"""Rows up to which one block does them all, a thread a row."""

_THREADS = 256


def _shape(samples: int, classes: int) -> tuple[int, int, bool]:
    """Threads of a row, rows of a block at a time, and whether one block does them all."""
    if classes <= _ONE_CLASSES and samples <= _WHOLE_SAMPLES:
        return 1, _THREADS, True
    return (32, 4, False) if classes <= _WARP_CLASSES else (_THREADS, 1, False)


def _measure(n: NodeView, function: str, result: str, result_type: str) -> list[Launch]:
    """Forward or inference: the rows, and the sums over them."""
    logits, label = n["logits"], n["label"]
    samples, classes = logits.rows, logits.channels
    if label.rows * label.channels != samples:
        raise n.problem(f"has {samples} rows of logits and {label.rows * label.channels} labels")
    lanes, rows, whole = _shape(samples, classes)
    row_loss, rank = n.temporary(samples * 4), n.temporary(samples * 4)
    t = logits.c_type
    sums: list[tuple[str, Arg]] = [(f"float* {name}", n.p(name)) for name in ("loss", "top1", "top5")]
    arguments: list[tuple[str, Arg]] = [
        (f"const {t}* logits", logits.p),
        ("const int* label", label.p),
        (f"{result_type}* {result}", n.p(result)),
        ("float* row_loss", row_loss),
        ("float* rank", rank),
        *(sums if whole else ()),
        ("int samples", N(samples)),
        ("float smoothing", F(n.number("label_smoothing"))),
    ]
    results = "loss, top1, top5" if whole else "nullptr, nullptr, nullptr"
    first = n.launch(
        f"{n.kind}__{logits.dtype.value}_c{classes}_p{logits.pitch}" + ("_whole" if whole else ""),
        "loss",
        f"{function}<{t}, {classes}, {logits.pitch}, {lanes}, {rows}, {str(whole).lower()}>"
        f"(logits, label, {result}, row_loss, rank, {results}, samples, smoothing)",
        arguments,
        (1 if whole else ceil_div(samples, rows), 1, 1),
        lanes * rows,
    )
    if whole:
        return [first]
    second = n.launch(
        "softmax_ce_finish__f32",
        "loss",
        f"add_rows<{_THREADS}>(row_loss, rank, loss, top1, top5, samples, K)",
        [
            ("const float* row_loss", row_loss),
            ("const float* rank", rank),
            *sums,
            ("int samples", N(samples)),
            ("int K", N(classes)),
        ],
        (1, 1, 1),
        _THREADS,
    )
    return [first, second]


@lowering("softmax_ce_fwd")
def softmax_ce_fwd(n: NodeView) -> list[Launch]:
    """Probabilities, mean loss, and counts of top-1 and top-5."""
    return _measure(n, "softmax_rows", "probs", "float")


@lowering("softmax_ce_infer")
def softmax_ce_infer(n: NodeView) -> list[Launch]:
    """The predicted classes, mean loss, and counts of top-1 and top-5."""
    return _measure(n, "predict_rows", "predicted", "int")


@lowering("softmax_ce_bwd")
def softmax_ce_bwd(n: NodeView) -> list[Launch]:
    """Compute dlogits = (probs - target) scaling / samples."""
    probs, dlogits = n["probs"], n["dlogits"]
    v, t = dlogits.vector, dlogits.c_type
    arguments: list[tuple[str, Arg]] = [
        ("const float* probs", probs.p),
        ("const int* label", n.p("label")),
        (f"{t}* dlogits", dlogits.p),
        ("const float* scaling", n.p("scaling")),
        ("int samples", N(probs.rows)),
        ("float smoothing", F(n.number("label_smoothing"))),
    ]
    return [
        n.launch(
            f"{n.kind}__{dlogits.dtype.value}_c{probs.channels}_p{dlogits.pitch}",
            "loss",
            f"softmax_backward<{t}, {probs.channels}, {dlogits.pitch}, {v}>"
            "(probs, label, dlogits, scaling, samples, smoothing)",
            arguments,
            one_each(dlogits.elements // v),
            256,
        )
    ]
