"""Any network that the DSL can say, against PyTorch (invariant 4 of the design), fused and not, packed and not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, note, settings

import trc
from tests.unit.session.interpreter import Reference
from tests.unit.session.networks import CLASSES, Case, networks
from tests.unit.session.rounding import applied_step, gap, yardstick
from trc_runtime.schema.check import check_plan

QUICK = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
THOROUGH = settings(max_examples=500, deadline=None, derandomize=False, suppress_health_check=list(HealthCheck))


def batch_of(case: Case, salt: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(case.seed + salt)
    assert case.net.input is not None
    return rng.standard_normal((case.batch, *case.net.input)), rng.integers(0, CLASSES, case.batch, dtype=np.int32)


def compiled(case: Case, **options: Any) -> trc.Executable:
    exe = trc.compile(case.net, batch=case.batch, val_batch=case.batch, seed=case.seed, **options)
    assert check_plan(exe.plan) == []
    return exe


class Expected:
    """What PyTorch computes in float64 for a case: a training step, then inference with the new statistics."""

    def __init__(self, case: Case, exe: trc.Executable) -> None:
        reference = Reference(case.net, torch.float64, seed=case.seed)
        reference.load(exe)
        self.parameters = {n: t.detach().numpy().copy() for n, t in reference.tensors.items() if t.requires_grad}
        self.loss = reference.step(*batch_of(case))
        self.gradients = reference.gradients()
        self.whole = float(np.sqrt(sum(np.sum(g**2) for g in self.gradients.values())))
        self.statistics = {n: t.numpy().copy() for n, t in reference.tensors.items() if "running" in n}
        images, labels = batch_of(case, 1)
        logits = reference.forward(images, training=False).detach()
        self.eval_loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels).long()).item()


def check_float64(case: Case, exe: trc.Executable, expected: Expected) -> None:
    """Loss, gradients, running statistics, then inference (with the parameters that the step began with)."""
    result = exe.step(*batch_of(case))
    assert abs(result.loss - expected.loss) <= 1e-8 * max(abs(expected.loss), 1e-3)
    for name, wanted in expected.gradients.items():
        distance = gap(exe.tensors[name], wanted)
        assert distance <= 1e-8 * float(np.linalg.norm(wanted)) + 1e-12 * max(expected.whole, 1.0), (name, distance)
    for name, wanted in expected.statistics.items():
        np.testing.assert_allclose(exe.tensors[name].ravel(), wanted.ravel(), 1e-8, 1e-10, err_msg=name)
    for name, value in expected.parameters.items():
        exe.tensors[name] = value
    assert exe.evaluate(*batch_of(case, 1)).loss == pytest.approx(expected.eval_loss, rel=1e-8, abs=1e-10)


def check_network(case: Case) -> None:
    expected: Expected | None = None
    for fuse, planner in ((True, "packed"), (False, "packed"), (True, "regions")):
        exe = compiled(case, precision="fp64", fuse=fuse, planner=planner)
        expected = expected or Expected(case, exe)
        for name, value in expected.parameters.items():  # drawn by seed and name alone
            np.testing.assert_array_equal(exe.tensors[name], value, err_msg=name)
        check_float64(case, exe, expected)


@QUICK
@given(networks())
def test_generated_networks(case: Case) -> None:
    note(str(case.net))
    check_network(case)


def test_images_of_one_column() -> None:
    """PyTorch's batch norm has to be called with care there (see the interpreter)."""
    net = trc.BluePrint(trc.seq(trc.bn(), trc.conv(3, 1), trc.bn(), trc.gap(), trc.fc(CLASSES)), "net", (2, 1, 1))
    check_network(Case(net, batch=2, seed=0))


FORMS = ({}, {"bn1": "materialised"}, {"conv1": "plain"}, {"bn1": "materialised", "conv1": "plain"})


@pytest.mark.parametrize("forms", FORMS, ids=str)
def test_a_bias_in_front_of_a_batch_norm_in_every_form(forms: dict[str, str], tmp_path: Path) -> None:
    """Left to the running mean or added, the network is the same."""
    (tmp_path / "forms.json").write_text(json.dumps(forms))
    layers = trc.conv(4, 3, 1, 1, bias=True), trc.bn(0.3, 1e-3), trc.relu(), trc.gap(), trc.fc(CLASSES)
    case = Case(trc.BluePrint(trc.seq(*layers), "net", (6, 6, 3)), batch=3, seed=1)
    exe = compiled(case, precision="fp64", choices=tmp_path / "forms.json")
    exe.tensors["conv1.bias"] = np.linspace(-1, 1, 4).reshape(1, 1, 1, 4)
    check_float64(case, exe, Expected(case, exe))


@pytest.mark.accept
@THOROUGH
@given(networks())
def test_five_hundred_generated_networks(case: Case) -> None:
    note(str(case.net))
    check_network(case)


@settings(QUICK, max_examples=20)
@given(networks())
def test_fused_and_deferred_agree(case: Case) -> None:
    """In float64 gradients agree to 1e-10 between fuse on and off and both planner modes."""
    note(str(case.net))
    images, labels = batch_of(case)
    found: list[dict[str, np.ndarray]] = []
    for options in ({"fuse": True}, {"fuse": False}, {"fuse": True, "planner": "regions"}):
        exe = compiled(case, precision="fp64", **options)
        exe.step(images, labels)
        found.append({n: exe.tensors[n] for n in exe.tensors if n.endswith(".grad") and "output" not in n})
    whole = max(1.0, float(np.sqrt(sum(np.sum(g**2) for g in found[0].values()))))
    for other in found[1:]:
        assert other.keys() == found[0].keys()
        for name, gradient in found[0].items():
            assert gap(gradient, other[name]) <= 1e-10 * float(np.linalg.norm(gradient)) + 1e-12 * whole, name


@settings(QUICK, max_examples=20)
@given(networks())
def test_float32_is_as_near_to_float64_as_pytorch(case: Case) -> None:
    note(str(case.net))
    exe = compiled(case, precision="fp32")
    exact, single = (Reference(case.net, dtype, seed=case.seed) for dtype in (torch.float64, torch.float32))
    exact.load(exe)
    single.load(exe)
    images, labels = batch_of(case)
    images = images.astype(np.float32)
    loss, single_loss = exact.step(images, labels), single.step(images, labels)
    assert abs(exe.step(images, labels).loss - loss) <= 4 * abs(single_loss - loss) + 1e-6 * max(1.0, abs(loss))
    theirs = single.gradients()
    for name, wanted in exact.gradients().items():
        ours = gap(exe.tensors[name], wanted)
        assert ours <= 4 * gap(theirs[name], wanted) + 1e-6 * max(1.0, float(np.linalg.norm(wanted))), name


@settings(QUICK, max_examples=20)
@given(networks())
def test_mixed_precision_is_within_what_rounding_can_do(case: Case) -> None:
    """Loss and gradients under AMP against float64, within what one rounding of everything that is stored can do."""
    note(str(case.net))
    images, labels = batch_of(case)
    for precision in ("amp-fp16", "amp-bf16"):
        exe = compiled(case, precision=precision)
        allowed = yardstick(case.net, precision, exe, images, labels, seed=case.seed)
        result, _ = applied_step(exe, images.astype(np.float32), labels)
        assert abs(result.loss - allowed.loss) <= allowed.loss_bound
        too_far = {n: d for n, d in allowed.distances(exe.tensors).items() if d > 1}
        assert not too_far, (precision, too_far)
