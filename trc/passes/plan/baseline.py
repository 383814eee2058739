"""The tensors that every network has: input buffers, flags, counters, rate and scale, results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal

import numpy as np

from trc.dialects.memplan import SpecOp
from trc.layers.descriptor import (
    ALL_COLUMNS,
    INFER_COLUMNS,
    TRAIN_COLUMNS,
    ZEROS,
    Shape,
    TensorDesc,
    constant_shape,
    infer_only,
)
from trc.passes.plan.network import Network
from trc.passes.plan.settings import OptimizerSettings
from trc_runtime.schema.config import EMA, Normalise
from trc_runtime.schema.normalise import scale_and_shift
from trc_runtime.schema.plan import Initial
from trc_runtime.schema.regions import Region
from trc_runtime.schema.staging import BUFFERS, BYTES

SCALAR: Shape = (1, 1, 1, 1)

AMP_INITIAL_SCALING = 8192.0
"""The loss scale that mixed precision starts with (spec/compiler-facts.md section 7.5)."""

SUMS = ("accum_loss", "accum_top1", "accum_top5")
"""Sums of results over an epoch."""

EMA_SUMS = ("accum_ema_loss", "accum_ema_top1", "accum_ema_top5")
"""The same of the moving average, so that both are validated in one pass over the data."""


def alpha_of(ema: EMA) -> float:
    """The share of the new weights, 1 - decay, of the decimal number that was written: 0.001 for 0.999."""
    return float(1 - Decimal(repr(ema.decay)))


INPUT_TABLES = ("input_scale", "input_shift")
"""The tables of `normalise_input`: x * scale + shift."""


def baseline(
    specs: Sequence[SpecOp],
    network: Network,
    optimizer: OptimizerSettings,
    rates: int,
    random: bool,
    normalise: Normalise | None = None,
    ema: EMA | None = None,
) -> Iterator[TensorDesc]:
    """The baseline tensors in order.

    `rates` is the length of the learning rate table, `random` whether a layer draws random numbers. With `normalise`
    the input buffers have images as bytes too, of as many channels as it has, and there are tables to normalise with;
    with `ema` the moving average has its weight and its sums of results.
    """
    amp = specs[0].precision_.is_amp
    labels = tuple((spec.batch_, 1, 1, 1) for spec in specs)
    for buffer in "AB":
        yield TensorDesc(f"label_{buffer.lower()}", Region[f"I_{buffer}_LABEL"], labels)
        yield TensorDesc(
            f"data_{buffer.lower()}", Region[f"I_{buffer}_DATA"], network.input, channels=network.real_channels
        )
    yield TensorDesc("label", Region.T_TEMP_INT32, labels)
    yield from _integers(specs, random)
    yield from _floats(optimizer, amp)
    if ema is not None:
        yield _scalar("ema_alpha", Region.S_SCALAR_FP32, TRAIN_COLUMNS, Initial("constant", alpha_of(ema)))
    for name in ("loss", "top1", "top5"):
        yield _scalar(name, Region.R_RESULT)
    yield TensorDesc("predicted", Region.R_PREDICTED_LABEL, infer_only(labels))
    for name in (*SUMS, *(EMA_SUMS if ema is not None else ())):
        yield _scalar(name, Region.R_RESULT_ACCUMULATED)
    shape = constant_shape((1, 1, 1, rates), TRAIN_COLUMNS)
    yield TensorDesc("lr_table", Region.S_TABLE, shape, Initial("table"))
    if normalise is not None:
        yield from _input(network, normalise)


def _input(network: Network, normalise: Normalise) -> Iterator[TensorDesc]:
    channels = len(normalise.mean)
    table = constant_shape((1, 1, 1, channels), ALL_COLUMNS)
    for name, numbers in zip(INPUT_TABLES, scale_and_shift(normalise, np.dtype(np.float64)), strict=True):
        yield TensorDesc(name, Region.S_TABLE, table, Initial("values", values=tuple(numbers.tolist())))
    images = tuple((*shape[:-1], channels) for shape in network.input)
    for buffer in BUFFERS:
        yield TensorDesc(f"{BYTES}_{buffer.lower()}", Region[f"I_{buffer}_BYTES"], images)


def _integers(specs: Sequence[SpecOp], random: bool) -> Iterator[TensorDesc]:
    region = Region.S_SCALAR_INT32
    yield _scalar("has_nan", region, TRAIN_COLUMNS)
    yield _scalar("zero_flag", region, INFER_COLUMNS)
    yield _scalar("iteration", region, TRAIN_COLUMNS)
    yield _scalar("applied", region, TRAIN_COLUMNS)
    sizes = {"batch_size": 0, "last_train_batch_size": 1, "val_batch_size": 4, "last_val_batch_size": 5}
    for name, column in sizes.items():
        columns = TRAIN_COLUMNS if column in TRAIN_COLUMNS else INFER_COLUMNS
        yield _scalar(name, region, columns, Initial("constant", float(specs[column].batch_)))
    if random:
        # Two words, low and high, of the run's seed, which the session writes.
        yield TensorDesc("seed", region, constant_shape((1, 1, 1, 2), TRAIN_COLUMNS))


def _floats(optimizer: OptimizerSettings, amp: bool) -> Iterator[TensorDesc]:
    region = Region.S_SCALAR_FP32
    yield _scalar("lr", region, TRAIN_COLUMNS)
    scale = AMP_INITIAL_SCALING if amp else 1.0
    yield _scalar("scaling", region, TRAIN_COLUMNS, Initial("constant", scale))
    for name, value in optimizer.scalars.items():
        yield _scalar(name, region, TRAIN_COLUMNS, Initial("constant", value) if value else ZEROS)
    if optimizer.adam:
        yield _scalar("bias_correction1", region, TRAIN_COLUMNS)
        yield _scalar("bias_correction2", region, TRAIN_COLUMNS)
    if amp:
        yield _scalar("growth_counter", Region.S_SCALAR_INT32, TRAIN_COLUMNS)


def _scalar(name: str, region: Region, columns: Sequence[int] = ALL_COLUMNS, initial: Initial = ZEROS) -> TensorDesc:
    return TensorDesc(name, region, constant_shape(SCALAR, columns), initial)
