"""The kernel forms of the layers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.passes import ModulePass

from trc.diagnostics import CompileError, Diagnostic, diagnostic_at
from trc.dialects.arch.base import LayerOp, shape_of
from trc.dialects.attributes import string
from trc.dialects.memplan import SpecOp
from trc.passes.plan.common import ops_of
from trc.passes.plan.network import Image, Network, network_of, read_model
from trc.passes.plan.trace import Trace
from trc_runtime.schema.dtypes import Precision

TARGETS = ("cpu", "cuda")


@dataclass(frozen=True)
class PlanSelectKernelsPass(ModulePass):
    """Choose each layer's kernel form, and refuse layers that cannot be compiled.

    Which forms fit follows from a layer's neighbours, which of them exist from the target's rules; of these all are
    taken, or what the JSON file `choices` says, an object of layer names and forms such as `stats+norm`. One choice
    holds for all columns; it is written on the layer. Without a `memplan.spec` the precision counts as fp32.
    """

    name = "plan-select-kernels"

    target: str = "cpu"
    choices: str = ""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Write `forms` on the layers."""
        if self.target not in TARGETS:
            raise CompileError(f"unknown target '{self.target}'; choose one of {', '.join(TARGETS)}")
        network = _network(op)
        choices = read_choices(self.choices) if self.choices else {}
        check_choices(choices, network)
        selection = Selection(network, self.target, choices)
        for top in network.tops:
            top.properties.pop("forms", None)
        for top, forms in selection.run().items():
            top.properties["forms"] = ArrayAttr(string(f"{leaf} = {words}") for leaf, words in forms)


def _network(module: ModuleOp) -> Network:
    """The network at the resolution of its own input, one sample, and in the precision of the specs."""
    model = read_model(module)
    specs = ops_of(module, SpecOp)
    _, height, width, channels = shape_of(model.body.block.args[0])
    if height is None or width is None or channels is None:
        raise CompileError.at(model, "the input's shape is unknown: write input(height, width, channels)")
    precision = specs[0].precision_ if specs else Precision.FP32
    # Two samples: forms do not depend on the batch, and batch norm wants more than one value.
    images = [Image("model", 2, height, width, channels) for _ in range(6)]
    return network_of(model, images, precision)


class Selection:
    """The choice of forms for one network and target."""

    def __init__(self, network: Network, target: str, choices: Mapping[str, str]) -> None:
        """Forms that the layers' operations carry already give way."""
        layers = tuple(replace(layer, form=choices.get(layer.name)) for layer in network.layers)
        self.network: Network = replace(network, layers=layers)
        self.target = target
        self._chosen: dict[int, frozenset[str]] = {}
        self._problems: list[Diagnostic] = []

    def run(self) -> dict[LayerOp, list[tuple[str, str]]]:
        """The forms to write, by operation; CompileError for choices that do not fit."""
        Trace(self.network, chooser=self._choose).forward()
        network = self.network
        found: dict[LayerOp, list[tuple[str, str]]] = {}
        for n, (layer, descriptor) in enumerate(zip(network.layers, network.descriptors, strict=True)):
            if layer.form is not None and n not in self._chosen and layer.form != descriptor.forms[0]:
                self._refuse(n, layer.form, frozenset())
            if descriptor.states_form and n in self._chosen:
                forms = self._chosen[n]
            elif layer.form == descriptor.forms[0] and len(descriptor.forms) > 1:
                forms = frozenset[str]()
            else:
                continue
            words = [word for word in descriptor.forms if word in forms] or [descriptor.forms[0]]
            found.setdefault(network.tops[n], []).append((layer.name, "+".join(words)))
        if self._problems:
            raise CompileError(self._problems)
        return found

    def _choose(self, n: int, candidates: Sequence[str], act: str) -> frozenset[str]:
        if n in self._chosen:
            return self._chosen[n]
        layer, descriptor = self.network.layers[n], self.network.descriptors[n]
        allowed = descriptor.allowed(self.target, layer, candidates, act)
        if layer.form is not None:
            wanted = frozenset(layer.form.split("+")) - {descriptor.forms[0]}
            # What is asked for must be possible together, not only each by itself.
            together = descriptor.allowed(self.target, layer, [c for c in candidates if c in wanted], act)
            if not wanted <= together:
                self._refuse(n, layer.form, allowed)
            allowed = wanted & together
        self._chosen[n] = allowed
        return allowed

    def _refuse(self, n: int, form: str, allowed: frozenset[str]) -> None:
        layer, descriptor = self.network.layers[n], self.network.descriptors[n]
        possible = "+".join(word for word in descriptor.forms if word in allowed) or descriptor.forms[0]
        text = f"form '{form}' is not possible here on {self.target}; the most is {possible}"
        self._problems.append(diagnostic_at(self.network.tops[n], text, layer.name))


def read_choices(path: str) -> dict[str, str]:
    """The choices of a file; CompileError says what is wrong with it."""
    try:
        document: object = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as err:
        raise CompileError(f"cannot read the kernel choices '{path}': {err}") from None
    if not isinstance(document, dict):
        raise CompileError(f"the kernel choices '{path}' must be an object of layer names and forms")
    pairs = cast(dict[str, object], document)
    if bad := [k for k, v in pairs.items() if not isinstance(v, str)]:
        raise CompileError(f"the kernel choices '{path}': the form of {', '.join(bad)} must be a word")
    return {k: str(v) for k, v in pairs.items()}


def check_choices(choices: Mapping[str, str], network: Network) -> None:
    """CompileError for layers that do not exist and forms that they do not have."""
    by_name = {layer.name: n for n, layer in enumerate(network.layers)}
    problems: list[Diagnostic] = []
    for layer, form in choices.items():
        if layer not in by_name:
            problems.append(Diagnostic(f"the kernel choices name a layer '{layer}' that the network does not have"))
            continue
        forms, words = network.descriptors[by_name[layer]].forms, form.split("+")
        unknown = next((word for word in words if word not in forms), None)
        top = network.tops[by_name[layer]]
        if unknown is not None:
            problems.append(diagnostic_at(top, f"has no form '{unknown}'; it has {', '.join(forms)}", layer))
        elif len(words) != len(set(words)) or (len(words) > 1 and forms[0] in words):
            problems.append(diagnostic_at(top, f"'{form}' names a form twice, or '{forms[0]}' beside another", layer))
    if problems:
        raise CompileError(problems)
