"""Every kind that has kernels of its own on the GPU, against the NumPy kernel, from random inputs and odd sizes."""

from __future__ import annotations

import pytest

from tests.gpu.harness import check_own, own_cases
from trc.codegen.cuda.lowering import lowered_kinds
from trc_runtime.cuda.context import Context

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def architecture() -> str:
    context = Context()
    try:
        return context.architecture
    finally:
        context.close()


@pytest.mark.parametrize("kind", sorted(lowered_kinds()))
def test_kind(kind: str, architecture: str) -> None:
    """All cases of a kind are run, and all that fail are shown."""
    assert kind in own_cases(), f"no case of {kind}"
    failed = []
    for case in own_cases()[kind]:
        try:
            check_own(case, architecture)
        except AssertionError as err:
            failed.append(f"{case.name}: {str(err).strip()[:600]}")
    assert not failed, f"{len(failed)} of {len(own_cases()[kind])} cases\n" + "\n".join(failed[:8])


def test_one_case_of_each_kind_without_graphs(architecture: str) -> None:
    for group in own_cases().values():
        check_own(group[-1], architecture, graphs=False)
