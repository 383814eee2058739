"""Tests that need an NVIDIA GPU: skipped, with the reason, where there is none.

With TRC_FAKE_GPU=1 they run on a GPU made of host memory (tests/unit/runtime/cuda/fake.py), which shows whether the
tests themselves are right.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache

import pytest

from trc_runtime.cuda.context import Context
from trc_runtime.cuda.errors import CudaError

FAKE = bool(os.environ.get("TRC_FAKE_GPU"))

if FAKE:
    from tests.unit.runtime.cuda.fake import install

    install(pytest.MonkeyPatch())


@cache
def _problem() -> str | None:
    try:
        Context().close()
    except CudaError as err:
        return str(err)
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("gpu") and (problem := _problem()):
            item.add_marker(pytest.mark.skip(reason=problem.splitlines()[0]))


@pytest.fixture(scope="session", autouse=True)
def _device() -> Iterator[None]:
    """Hold the device's context for the whole run: making it anew for each session would take most of the time."""
    if _problem() is not None:
        yield
        return
    context = Context()
    yield
    context.close()
