"""Descriptors of layers and the kinds of their nodes. Importing this package registers all that trc knows."""

from trc.layers import activation, dense, dropout, joining, loss, norm, optimizer, system

__all__ = ["activation", "dense", "dropout", "joining", "loss", "norm", "optimizer", "system"]
