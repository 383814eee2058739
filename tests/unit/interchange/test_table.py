"""The tables of a network and its plan: nothing is left out, and the numbers add up."""

from __future__ import annotations

import pytest

import trc
from trc.blueprint import import_blueprint
from trc.codegen.plan_lowering import lower_module
from trc.diagnostics import CompileError
from trc.interchange.parameters import parameter_count
from trc.interchange.table import layer_rows, plan_table, tensor_rows
from trc.models import ZOO
from trc.session.compiling import run_phases


@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("name", ["mlp", "lenet5", "resnet18", "resnet50", "mobilenet_v2"])
def test_rows(name: str, fuse: bool) -> None:
    lowered = run_phases(ZOO[name](), {"fuse": fuse, "batch": 4})
    plan = lower_module(lowered.module, lowered.config)
    rows = layer_rows(lowered.module, plan)
    assert [row[0] for row in rows] == [str(n) for n in range(1, len(rows) + 1)]
    assert sum(int(row[5]) for row in rows) == parameter_count(lowered.module)
    known = {"(input)"}
    for row in rows:
        assert known >= set(row[3].split(", "))
        known.add(row[2])
    tensors = tensor_rows(plan)
    assert [row[1] for row in tensors] == [t.name for t in plan.tensors]
    assert [int(row[5]) for row in tensors] == [t.offset for t in plan.tensors]
    text = plan_table(lowered.module, plan)
    assert f", {parameter_count(lowered.module)} parameters\n" in text
    assert len(text.splitlines()) == len(rows) + len(tensors) + 5
    assert all(line == line.rstrip() for line in text.splitlines())


def test_structure_is_refused() -> None:
    plan = trc.session.lower_to_plan(trc.fc(2), input=(2, 2, 1))
    with pytest.raises(CompileError, match="run arch-expand-tree first"):
        layer_rows(import_blueprint(trc.seq(trc.add2(trc.identity(), trc.relu())), (2, 2, 1)), plan)
