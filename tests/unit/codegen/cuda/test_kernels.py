"""Each kind's kernels, emulated on the CPU, against the CPU target's kernel."""

from __future__ import annotations

from functools import cache

import pytest

from tests.unit.codegen.cuda.cases import every
from tests.unit.codegen.cuda.differential import Case, compare
from tests.unit.codegen.cuda.emulator import COMPILER, Emulator
from trc.codegen.cuda.lowering import lowered_kinds

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++")


@cache
def cases() -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = {}
    for case in every():
        found.setdefault(case.plan.nodes[0].kind, []).append(case)
    return found


@cache
def emulator() -> Emulator:
    return Emulator(
        {
            launch.instance.name: launch.instance
            for group in cases().values()
            for case in group
            for launch in case.lowered.launches
        }
    )


@pytest.mark.parametrize("kind", sorted(lowered_kinds()))
def test_kind(kind: str) -> None:
    assert kind in cases(), f"no case of {kind}"
    for case in cases()[kind]:
        try:
            compare(case, emulator())
        except AssertionError as err:
            raise AssertionError(f"{case.name}: {err}") from None
