"""The files of a CUDA bundle that follow from the plan alone: kernels.cu, driver.py and nodemap.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from trc.codegen.cuda import driver
from trc.codegen.cuda.emitter import source_of
from trc.codegen.cuda.program import Program, lower_plan, name_of
from trc_runtime.schema.bundle import DRIVER, KERNELS, NODEMAP
from trc_runtime.schema.codec import Json
from trc_runtime.schema.plan import Plan

_NODEMAP = {"format": "trc-nodemap", "version": 1}


@dataclass(frozen=True)
class CudaCode:
    """What is generated for a plan. The same plan gives the same bytes."""

    program: Program
    kernels: str
    """kernels.cu"""
    driver: str
    """driver.py"""
    nodemap: str
    """nodemap.json: which layers use a kernel or a cuDNN graph, and what each node calls."""

    @property
    def files(self) -> Mapping[str, bytes]:
        """The three as files of a bundle."""
        texts = {KERNELS: self.kernels, DRIVER: self.driver, NODEMAP: self.nodemap}
        return {name: text.encode() for name, text in texts.items()}


def generate(plan: Plan) -> CudaCode:
    """The code of a plan. CompileError names every kind and layer that CUDA cannot do."""
    program = lower_plan(plan)
    return CudaCode(
        program=program,
        kernels=source_of(dict(program.instances)),
        driver=driver.emit(plan, program),
        nodemap=_nodemap(program),
    )


def _nodemap(program: Program) -> str:
    captures: list[Json] = []
    for function in program.functions:
        nodes: list[Json] = [
            {
                "node": code.view.index,
                "kind": code.view.kind,
                "layer": code.view.node.layer,
                "calls": [name_of(call) or type(call).__name__.removesuffix("Call").lower() for call in code.calls],
            }
            for code in function.nodes
        ]
        captures.append({"function": function.name, "column": function.capture.column, "nodes": nodes})
    layers = program.layers()
    document: dict[str, Json] = {
        **_NODEMAP,
        "kernels": {name: [*layers.get(name, ())] for name in program.instances},
        "cudnn": {name: [*layers.get(name, ())] for name in program.descriptions},
        "captures": captures,
    }
    return json.dumps(document, indent=1) + "\n"
