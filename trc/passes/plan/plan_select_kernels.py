"""The forms in which layers hand their results on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from trc.diagnostics import CompileError, Diagnostic, diagnostic_at
from trc.dialects.arch.base import LayerOp
from trc.layers.descriptor import Descriptor
from trc.layers.registry import require
from trc.passes.plan.network import layer_ops, read_model

TARGETS = ("cpu", "cuda")


@dataclass(frozen=True)
class PlanSelectKernelsPass(ModulePass):
    """Choose each layer's kernel form, and refuse layers that cannot be compiled.

    The choice is the descriptor's default form or what the JSON file `choices` says, an object of layer names and
    forms. A layer whose descriptor offers one form has no choice, and nothing is written for it.
    """

    name = "plan-select-kernels"

    target: str = "cpu"
    choices: str = ""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Check the target, the layers and the choices."""
        if self.target not in TARGETS:
            raise CompileError(f"unknown target '{self.target}'; choose one of {', '.join(TARGETS)}")
        ops = layer_ops(read_model(op))
        descriptors = require(ops)
        if self.choices:
            check_choices(read_choices(self.choices), ops, descriptors)


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


def check_choices(choices: Mapping[str, str], ops: list[LayerOp], descriptors: list[Descriptor]) -> None:
    """CompileError for layers that do not exist and forms that they do not have."""
    by_name = {o.layer_name: (o, d) for o, d in zip(ops, descriptors, strict=True)}
    problems: list[Diagnostic] = []
    for layer, form in choices.items():
        if layer not in by_name:
            problems.append(Diagnostic(f"the kernel choices name a layer '{layer}' that the network does not have"))
            continue
        op, descriptor = by_name[layer]
        if form not in descriptor.forms:
            known = ", ".join(descriptor.forms)
            problems.append(diagnostic_at(op, f"has no form '{form}'; it has {known}", layer))
    if problems:
        raise CompileError(problems)
