"""Weights as matrices (taps and source channels, target channels), a job and a group at a time."""

from __future__ import annotations

from math import prod

import numpy as np

from trc_runtime.cpu.bind import Array, BoundNode
from trc_runtime.cpu.conv.geometry import Geometry, Job
from trc_runtime.cpu.half import compute_type, load


class Loaded:
    """An array in the compute type: itself, or scratch that `refresh` fills from half storage in every run."""

    def __init__(self, node: BoundNode, array: Array) -> None:
        kind = compute_type(array.dtype)
        self._stored = None if array.dtype == kind else array
        self.values = array if self._stored is None else node.scratch(array.shape, kind)

    def refresh(self) -> None:
        """Convert again."""
        if self._stored is not None:
            load(self._stored, self.values)


def of_job(weight: Array, g: Geometry, job: Job, group: int, backward: bool) -> Array:
    """A view (window height, window width, source channels, target channels) of one group's weights."""
    k = g.k // g.groups
    taps = weight[group * k : (group + 1) * k, job.taps[0]][:, :, job.taps[1]]
    return taps.transpose((1, 2, 0, 3) if backward else (1, 2, 3, 0))


class Matrix:
    """A four-dimensional view of weights as (all but the last dimension, the last), copied only where it must be."""

    def __init__(self, node: BoundNode, view: Array) -> None:
        shape = (prod(view.shape[:3]), view.shape[3])
        self._view: Array | None = None
        try:
            self.values = view.reshape(shape, copy=False)
        except ValueError:
            self._view = view
            self.values = node.scratch(shape, view.dtype)
            self._copy = self.values.reshape(view.shape)

    def refresh(self) -> None:
        """Copy again."""
        if self._view is not None:
            np.copyto(self._copy, self._view)
