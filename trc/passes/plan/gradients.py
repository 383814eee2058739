"""Where the gradients of activations live, and where several of them are summed.

The gradient of a layer's result is the sum over its uses. A use of its own writes a tensor; a layer that passes its
gradient on (a sum of branches, an identity, an activation that became part of its input) contributes its own
result's gradient, the same tensor. Where one use exists its tensor is the gradient; where several exist they are added
in the order of the uses.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from trc.passes.plan.network import INPUT, Network


@dataclass
class Gradients:
    """The gradients of one network, by layer.

    `of_output[l]` is the gradient of layer l's result (None where it has none); `of_input[l][i]` the tensor that layer
    l's backward writes for its input i (None where nobody needs it or the gradient is passed on); `sums[l]` are
    (a, b, sum) triples that must be added before the backward of layer l; `tensors[l]` the tensors, each shaped
    as layer l's result.
    """

    of_output: list[str | None]
    of_input: list[list[str | None]]
    sums: list[list[tuple[str, str, str]]] = field(default_factory=list[list[tuple[str, str, str]]])
    tensors: list[list[str]] = field(default_factory=list[list[str]])


def plan_gradients(network: Network, folded: Collection[int] = ()) -> Gradients:
    """Name the gradients of all activations. Linear in the uses.

    `folded` are layers without a backward of their own: their input's gradient is written in place of their result's.
    """
    count = len(network.layers)
    owner = list(range(count))
    uses: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for n, (layer, roots) in enumerate(zip(network.layers, network.roots, strict=True)):
        if network.descriptors[n].alias:
            continue  # its readers count as readers of what it passes on
        if n in folded:
            owner[n] = owner[roots[0]]
            continue
        for i, root in enumerate(roots):
            if layer.wanted[i] and root != INPUT:
                uses[owner[root]].append((n, i))
    result = Gradients(
        [None] * count,
        [[None] * len(roots) for roots in network.roots],
        [[] for _ in range(count)],
        [[] for _ in range(count)],
    )
    for n in reversed(range(count)):
        if uses[n]:
            result.of_output[n] = _gather(network, result, n, uses[n])
    return result


def _gather(network: Network, result: Gradients, n: int, uses: list[tuple[int, int]]) -> str:
    """The gradient of layer n's result, once those of all later layers are known."""
    name = f"{network.layers[n].name}.output.grad"
    parts: list[str] = []
    for k, (user, index) in enumerate(uses):
        passed = result.of_output[user]
        if network.descriptors[user].passes_gradient and passed is not None:
            parts.append(passed)
            continue
        own = name if len(uses) == 1 else f"{name}.part{k}"
        result.of_input[user][index] = own
        result.tensors[n].append(own)
        parts.append(own)
    total = parts[0]
    for k, part in enumerate(parts[1:], start=1):
        out = name if k == len(parts) - 1 else f"{name}.sum{k}"
        result.tensors[n].append(out)
        result.sums[n].append((total, part, out))
        total = out
    return total
