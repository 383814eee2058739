"""Descriptors of layers and the kinds of their nodes. Importing this package registers all that trc knows."""

from trc.layers import activation, conv, dense, dropout, ema, joining, loss, merged, norm, optimizer, pool, system

__all__ = [
    "activation",
    "conv",
    "dense",
    "dropout",
    "ema",
    "joining",
    "loss",
    "merged",
    "norm",
    "optimizer",
    "pool",
    "system",
]
