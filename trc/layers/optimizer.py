"""Kinds of the optimizers: rate, counters, and the updates that run over whole ranges of regions."""

from __future__ import annotations

from trc_runtime.schema.kinds import KINDS, Access, Kind, Operand, ParamType, updates, writes


def _update(name: str, moments: tuple[str, ...], scalars: tuple[str, ...], *params: tuple[str, ParamType]) -> Kind:
    operands = (
        Operand("g", Access.READ, is_range=True),
        *(Operand(n, Access.UPDATE, is_range=True) for n in ("w", *moments)),
    )
    return KINDS.register(Kind(name, operands, scalars=scalars, params=(*params, ("decay", str)), on_range=True))


FETCH_RATE = KINDS.register(Kind("fetch_rate", writes("lr"), scalars=("lr_table", "iteration")))
"""lr := lr_table[min(iteration, length - 1)]."""

COUNT_STEP = KINDS.register(Kind("count_step", updates("iteration", "applied"), scalars=("has_nan",)))
"""iteration += 1; applied += 1 unless the step is skipped."""

BIAS_CORRECTION = KINDS.register(
    Kind(
        "bias_correction",
        writes("bias_correction1", "bias_correction2"),
        scalars=("beta1", "beta2", "applied"),
    )
)
"""1 / (1 - beta ^ (applied + 1)) for both moments."""

SGD_UPDATE = _update("sgd_update", (), ("lr", "weight_decay", "scaling", "has_nan"))
MOMENTUM_UPDATE = _update(
    "momentum_update", ("m",), ("lr", "beta1", "weight_decay", "scaling", "has_nan"), ("nesterov", bool)
)
ADAM_UPDATE = _update(
    "adam_update",
    ("m", "v"),
    (
        "lr",
        "beta1",
        "beta2",
        "eps",
        "weight_decay",
        "bias_correction1",
        "bias_correction2",
        "scaling",
        "has_nan",
    ),
)
"""`decay` of all three is none, l2 (added to the gradient) or decoupled (the weight shrinks by lr * weight_decay)."""
