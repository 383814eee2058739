"""Optimizers as updates of whole ranges of regions, block by block.

All update the weights w in place from the gradients g (already summed over the batch's mean):

    g' = g / scaling                     (left out where the scaling is 1)
    g' = g' + weight_decay w             decay "l2"
    SGD        w -= lr g'
    momentum   m = beta1 m + g';  w -= lr m;  with nesterov  w -= lr (g' + beta1 m)
    Adam       m += (1 - beta1) (g' - m);  v += (1 - beta2) (g'^2 - v);
               w -= lr m bc1 / (sqrt(v bc2) + eps)
    decay "decoupled":  w -= lr weight_decay w besides, with the old w

(spec/training-facts.md section 4.2; Kingma and Ba 2015; Loshchilov and Hutter 2019.) The moments are written as
weighted differences, which keeps the small weights 1 - beta exact, and the decay is subtracted together with the
step: 1 - lr weight_decay itself has no digits left in float32. Nothing changes when has_nan is set. The gaps
between slots hold zeros, and stay zero.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from trc_runtime.cpu.bind import Array, BoundNode
from trc_runtime.cpu.kernels.blocks import cut
from trc_runtime.cpu.kernels.scalars import decimal_of
from trc_runtime.cpu.registry import Run, kernel
from trc_runtime.schema.kinds import Access

BLOCK = 1 << 17
"""Elements of a block. Measured: smaller ones lose to the cost of a call, larger ones gain nothing. (Two threads gain
nothing either: between its products, OpenBLAS keeps the other processors spinning.)"""

DECAYS = ("none", "l2", "decoupled")


class _Update:
    """What all updates share: the blocks of the ranges, scratch, scalars, and the decay."""

    def __init__(self, node: BoundNode, moments: int) -> None:
        arrays = node.ranges(Access.READ) + node.ranges(Access.UPDATE)
        if len(arrays) != 2 + moments:
            raise node.problem(f"takes 1 range to read and {1 + moments} to update, not {len(arrays)} in all")
        if len({a.size for a in arrays}) != 1:
            raise node.problem(f"the ranges differ in size: {', '.join(str(a.size) for a in arrays)} elements")
        self.decay = node.text("decay")
        if self.decay not in DECAYS:
            raise node.problem(f"decay must be one of {', '.join(DECAYS)}, not '{self.decay}'")
        size = min(arrays[0].size, BLOCK)
        t, u = node.scratch((size,)), node.scratch((size,))
        self.blocks = [(*block, t[: block[0].size], u[: block[0].size]) for block in cut(arrays, BLOCK)]
        """The ranges in order, then two pieces of scratch, block by block."""
        self._rate, self._weight_decay = node.scalar("lr"), node.scalar("weight_decay")
        self._scaling, self._has_nan = node.scalar("scaling"), node.scalar("has_nan")
        self.rate = self.weight_decay = 0.0
        self.scaling = 1.0

    def begin(self) -> bool:
        """Read the scalars of this step; False if it is skipped."""
        if self._has_nan[0]:
            return False
        self.rate = float(self._rate[0])
        self.weight_decay = float(self._weight_decay[0]) if self.decay != "none" else 0.0
        self.scaling = float(self._scaling[0])
        return True

    def gradient(self, g: Array, w: Array, t: Array, u: Array) -> Array:
        """g', which is g itself or in `t`; `u` is scratch."""
        if self.scaling != 1.0:
            np.divide(g, self.scaling, out=t)
            g = t
        if self.decay == "l2" and self.weight_decay:
            np.multiply(w, self.weight_decay, out=u)
            np.add(u, g, out=t)
            g = t
        return g

    def apply(self, w: Array, step: Array, t: Array) -> None:
        """Compute w -= step, and rate weight_decay w with it if the decay is decoupled. Overwrites step and t."""
        if self.decay == "decoupled" and self.weight_decay:
            np.multiply(w, self.rate * self.weight_decay, out=t)
            np.add(step, t, out=step)
        np.subtract(w, step, out=w)


@kernel("sgd_update")
def sgd_update(node: BoundNode) -> Run:
    """Compute w -= lr g'."""
    update = _Update(node, moments=0)

    def run() -> None:
        if not update.begin():
            return
        for g, w, t, u in update.blocks:
            np.multiply(update.gradient(g, w, t, u), update.rate, out=u)
            update.apply(w, u, t)

    return run


@kernel("momentum_update")
def momentum_update(node: BoundNode) -> Run:
    """Compute m = beta1 m + g'; w -= lr m, or lr (g' + beta1 m) with `nesterov`."""
    update = _Update(node, moments=1)
    beta1, nesterov = node.scalar("beta1"), node.flag("nesterov")

    def run() -> None:
        if not update.begin():
            return
        beta = float(beta1[0])
        for g, w, m, t, u in update.blocks:
            gradient = update.gradient(g, w, t, u)
            np.multiply(m, beta, out=m)
            np.add(m, gradient, out=m)
            if nesterov:
                np.multiply(m, beta, out=u)
                np.add(u, gradient, out=u)
                np.multiply(u, update.rate, out=u)
            else:
                np.multiply(m, update.rate, out=u)
            update.apply(w, u, t)

    return run


@kernel("adam_update")
def adam_update(node: BoundNode) -> Run:
    """Adam and, with decay "decoupled", AdamW; see the file's head."""
    update = _Update(node, moments=2)
    beta1, beta2, eps = node.scalar("beta1"), node.scalar("beta2"), node.scalar("eps")
    correction1, correction2 = node.scalar("bias_correction1"), node.scalar("bias_correction2")

    def run() -> None:
        if not update.begin():
            return
        new1, new2 = 1.0 - decimal_of(beta1[0]), 1.0 - decimal_of(beta2[0])
        # lr m bc1 / (sqrt(v bc2) + eps) = (lr bc1 / r) m / (sqrt v + eps / r) with r = sqrt bc2
        root = sqrt(float(correction2[0]))
        factor = update.rate * float(correction1[0]) / root
        small = float(eps[0]) / root
        for g, w, m, v, t, u in update.blocks:
            gradient = update.gradient(g, w, t, u)
            np.subtract(gradient, m, out=u)
            np.multiply(u, new1, out=u)
            np.add(m, u, out=m)
            np.multiply(gradient, gradient, out=u)
            np.subtract(u, v, out=u)
            np.multiply(u, new2, out=u)
            np.add(v, u, out=v)
            np.sqrt(v, out=u)
            np.add(u, small, out=u)
            np.divide(m, u, out=u)
            np.multiply(u, factor, out=u)
            update.apply(w, u, t)

    return run
