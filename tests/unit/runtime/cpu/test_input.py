"""The normalisation of bytes against float64, and against what the host would have staged, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.runtime.cpu.plans import PlanBuilder
from trc_runtime.cpu.half import narrowed
from trc_runtime.cpu.session import CpuSession
from trc_runtime.schema.config import Normalise
from trc_runtime.schema.dtypes import Precision
from trc_runtime.schema.graphs import GraphId
from trc_runtime.schema.normalise import normalised, scale_and_shift
from trc_runtime.schema.plan import Initial
from trc_runtime.schema.regions import Region

CASES = [(1, 1), (1, 4), (2, 2), (3, 3), (3, 4), (4, 4), (17, 17), (19, 20)]


def session_of(shape: tuple[int, ...], wide: int, how: Normalise, precision: Precision) -> CpuSession:
    """A plan of the one node; its tables hold what the plan says."""
    b, c = PlanBuilder(precision=precision), shape[-1]
    b.tensor("bytes_a", Region.I_A_BYTES, shape)
    b.tensor("data_a", Region.I_A_DATA, (*shape[:-1], wide), channels=c if c < wide else None)
    for name, numbers in zip(("scale", "shift"), scale_and_shift(how, np.dtype(np.float64)), strict=True):
        b.tensor(name, Region.S_TABLE, (1, 1, 1, len(numbers)), initial=Initial("values", values=tuple(numbers)))
    tables = {"scale": "scale", "shift": "shift"}
    b.node("normalise_input", GraphId.TRANSFER_A, reads={"x": "bytes_a"}, writes={"y": "data_a"}, scalars=tables)
    b.step("transfer_a", [0], [GraphId.TRANSFER_A])
    session = CpuSession(b.build())
    session.initialise()
    return session


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.FP64, Precision.AMP_FP16, Precision.AMP_BF16])
@pytest.mark.parametrize(("c", "wide"), CASES)
@pytest.mark.parametrize("size", [(3, 5, 7), (2, 1, 1), (1, 90, 130)])
def test_pixels(precision: Precision, c: int, wide: int, size: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(c * wide)
    how = Normalise(tuple(rng.uniform(-0.5, 1, c)), tuple(rng.uniform(0.05, 2, c)))
    images = rng.integers(0, 256, (*size, c), dtype=np.uint8)
    session = session_of(images.shape, wide, how, precision)
    session.write("bytes_a", images)
    stored = session._memory.view(session.plan.tensors[1], (*size, wide))
    stored.view(np.uint8)[...] = 0xFF
    session.run("transfer_a", 0)
    master = np.float64 if precision is Precision.FP64 else np.float32
    on_host = narrowed(normalised(images, how, master), precision.compute.numpy)
    assert stored[..., :c].tobytes() == on_host.tobytes(), "the same bytes as when the host normalises"
    assert not stored[..., c:].view(np.uint8).any(), "channels that images lack are zero"
    # Half units of the larger term: two for scale, one each for shift and product, two for the sum of two
    mean, std = (np.array(numbers, np.longdouble) for numbers in (how.mean, how.std))
    exact = (images / np.longdouble(255) - mean) / std
    terms = np.maximum(np.abs(images / 255 / std), np.abs(mean / std))
    eps = {Precision.AMP_FP16: 2.0**-10, Precision.AMP_BF16: 2.0**-7}.get(precision, 0.0)
    bound = 3 * np.finfo(master).eps * terms + 0.5 * eps * np.abs(exact) + (2.0**-24 if eps else 0)
    assert (np.abs(session.read("data_a") - exact) <= bound).all()


def test_tables_are_read_when_the_node_runs() -> None:
    session = session_of((2, 3, 3, 1), 1, Normalise((0.5,), (0.5,)), Precision.FP32)
    session.write("bytes_a", np.full((2, 3, 3, 1), 255, np.uint8))
    session.run("transfer_a", 0)
    assert session.read("data_a").max() == pytest.approx(1.0)
    session.write("shift", np.full((1, 1, 1, 1), 7, np.float32))
    session.run("transfer_a", 0)
    assert session.read("data_a").min() == pytest.approx(9.0)


def test_what_does_not_fit_is_named() -> None:
    how = Normalise((0.5, 0.5), (0.5, 0.5))
    with pytest.raises(ValueError, match=r"node normalise_input: normalises \(2, 3, 3, 1\) with 2 scales and 2 shifts"):
        session_of((2, 3, 3, 1), 1, how, Precision.FP32).run("transfer_a", 0)
    b = PlanBuilder()
    b.tensor("scale", Region.S_TABLE, (1, 1, 1, 3), initial=Initial("values", values=(1.0, 2.0)))
    with pytest.raises(ValueError, match="tensor 'scale' has 3 elements, its initial rule 2 values"):
        CpuSession(b.build()).initialise()
