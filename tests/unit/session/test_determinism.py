"""The same input gives the same bytes: IR, plan, and weights after an epoch."""

import numpy as np
import pytest

import trc
from trc.codegen.plan_lowering import lower_module
from trc.session.compiling import run_phases
from trc.session.options import CompileOptions
from trc_runtime.data.synthetic import synthetic
from trc_runtime.schema.check import check_plan

NET = trc.BluePrint(
    trc.seq(trc.fc(17), trc.bn(), trc.relu(), trc.dropout(0.3), trc.fc(9), trc.silu(), trc.fc(4)),
    name="net",
    input=(5, 4, 3),
)
OPTIONS: CompileOptions = {
    "batch": 16,
    "epochs": 2,
    "train_samples": 100,
    "val_samples": 40,
    "optimizer": trc.AdamW(weight_decay=1e-2),
    "schedule": trc.CosineAnnealing(base_lr=1e-2, warmup=1),
    "seed": 3,
}


def trained(seed: int = 3) -> bytes:
    exe = trc.compile(NET, **{**OPTIONS, "seed": seed})
    exe.run(synthetic((5, 4, 3), 4, 100, 40))
    return exe.checkpoint_bytes()


def test_weights_after_training() -> None:
    assert trained() == trained()
    assert trained() != trained(seed=4)


def test_ir_and_plan() -> None:
    first, second = (run_phases(NET, OPTIONS) for _ in range(2))
    assert str(first.module) == str(second.module)
    plans = [lower_module(r.module, r.config).to_json() for r in (first, second)]
    assert plans[0] == plans[1]


@pytest.mark.parametrize("planner", ["packed", "regions"])
@pytest.mark.parametrize("precision", ["fp32", "fp64", "amp-fp16"])
def test_plans_are_proved_safe(planner: str, precision: str) -> None:
    lowered = run_phases(NET, {**OPTIONS, "planner": planner, "precision": precision})
    assert check_plan(lower_module(lowered.module, lowered.config)) == []


def test_both_planner_modes_compute_the_same() -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.standard_normal((16, 5, 4, 3), dtype=np.float32), rng.integers(0, 4, 16)
    results = []
    for planner in ("packed", "regions"):
        exe = trc.compile(NET, **{**OPTIONS, "planner": planner})
        for _ in range(3):
            exe.step(images, labels)
        results.append(exe.tensors["fc1.weight"])
    np.testing.assert_array_equal(results[0], results[1])
