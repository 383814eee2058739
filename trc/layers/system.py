"""Kinds of operation that belong to no layer: input, gradients as a whole, statistics, metrics, loss scale."""

from __future__ import annotations

from trc_runtime.schema.graphs import StreamKind
from trc_runtime.schema.kinds import KINDS, Access, Kind, Operand, reads, updates, writes


def _range(access: Access, name: str = "range") -> Operand:
    return Operand(name, access, is_range=True)


H2D_COPY = KINDS.register(
    Kind(
        "h2d_copy",
        (_range(Access.WRITE),),
        params=(("buffer", str),),
        stream=StreamKind.TRANS,
        on_range=True,
    )
)
"""Copy the host's labels or images, or both, into an input buffer."""

NORMALISE_INPUT = KINDS.register(
    Kind("normalise_input", (*reads("x"), *writes("y")), scalars=("scale", "shift"), stream=StreamKind.TRANS)
)
"""y = x * scale + shift for images x of unsigned bytes; scale and shift are tables with one number a channel.

Product and sum are each rounded once to the type of the tables, then to that of y. Channels that only y has are zero.
"""

COPY = KINDS.register(Kind("copy", (*reads("x"), *writes("y")), may_alias=(("y", "x"),)))

CLEAR = KINDS.register(Kind("clear", (_range(Access.WRITE),), on_range=True))

CHECK_NAN = KINDS.register(
    Kind("check_nan", (_range(Access.READ), *writes("has_nan")), on_range=True),
)
"""has_nan := whether any gradient is NaN or infinite."""

MEAN_ALLREDUCE = KINDS.register(Kind("mean_allreduce", (_range(Access.UPDATE),), on_range=True))
"""The mean over the ranks."""

COMMIT_STATS = KINDS.register(
    Kind(
        "commit_stats",
        (_range(Access.READ, "next"), _range(Access.UPDATE, "prev")),
        scalars=("has_nan",),
        on_range=True,
    )
)
"""prev := next, unless the step is skipped."""

ACCUMULATE_METRICS = KINDS.register(
    Kind(
        "accumulate_metrics",
        (*reads("loss", "top1", "top5"), *updates("accum_loss", "accum_top1", "accum_top5")),
        scalars=("batch_size", "has_nan"),
    )
)
"""accum_loss += loss * batch_size, accum_topk += topk, unless the step is skipped."""

CAST_RANGE = KINDS.register(
    Kind("cast_range", (_range(Access.READ, "source"), _range(Access.WRITE, "target")), on_range=True)
)
"""Master weights to working half weights."""

SCALE_UPDATE = KINDS.register(Kind("scale_update", updates("scaling", "growth_counter"), scalars=("has_nan",)))
"""Halve the loss scale after a skipped step, double it after many good ones."""
