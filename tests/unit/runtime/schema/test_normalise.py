"""How pixels of bytes become numbers: what is refused, the formula, and documents from before there was one."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.unit.runtime.cpu.plans import CONFIG
from trc_runtime.schema.codec import CodecError, from_json, to_json
from trc_runtime.schema.config import Normalise, RunConfig
from trc_runtime.schema.normalise import largest_pixel, normalised, scale_and_shift
from trc_runtime.schema.plan import Initial


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        ((0.5,), (0.0,), r"std must be above 0 in each channel, not \(0\.0,\)"),
        ((0.5, 0.5), (1.0, -1.0), "std must be above 0"),
        ((0.5,), (float("nan"),), "std must be above 0"),
        ((float("inf"),), (1.0,), r"mean must be finite, not \(inf,\)"),
        ((0.5, 0.5), (1.0,), "mean has 2 channels, std has 1"),
        ((), (), "there is no channel"),
        (0.5, (1.0,), "mean must be a tuple of numbers, not 0.5"),
        ((0.5,), ("x",), r"std must be a tuple of numbers, not \('x',\)"),
        ((0.5,), (1e-39,), "std is too small"),
        ((-1.0,), (4e-39,), "std is too small"),
        ((0.5,), (1e36,), "std is too large"),
        ((0.5,), (1e308,), "std is too large"),
        ({0.5, 0.25}, (1.0, 1.0), "mean must be a tuple of numbers, not {"),
        ((0.5, 0.25), {1: 2, 3: 4}, "std must be a tuple of numbers, not {"),
    ],
)
def test_what_is_refused(mean: Any, std: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"Normalise: .*{message}|Normalise: {message}"):
        Normalise(mean, std)


def test_numbers_of_any_kind_are_equal() -> None:
    assert Normalise([0, 1], np.array([1, 2])) == Normalise((0.0, 1.0), (1.0, 2.0))  # type: ignore[arg-type]
    assert str(Normalise((0.1307,), (0.3081,))) == "mean 0.1307, std 0.3081"
    assert str(Normalise((0.5, 0.25), (1, 2))) == "mean (0.5, 0.25), std (1, 2)"


def test_scale_and_shift_are_rounded_once() -> None:
    how = Normalise((0.1, 0.7), (0.3, 0.9))
    exact = scale_and_shift(how, np.dtype(np.float64))
    assert exact[0].tolist() == [1 / (255 * 0.3), 1 / (255 * 0.9)]
    assert exact[1].tolist() == [-0.1 / 0.3, -0.7 / 0.9]
    for single, double in zip(scale_and_shift(how, np.dtype(np.float32)), exact, strict=True):
        assert np.array_equal(single, double.astype(np.float32))
    pixels = np.arange(256, dtype=np.uint8).reshape(1, 1, 128, 2)
    wanted = (pixels / 255 - how.mean) / how.std
    np.testing.assert_allclose(normalised(pixels, how, np.float64), wanted, rtol=1e-14, atol=1e-15)
    assert largest_pixel(how) == pytest.approx(0.9 / 0.3)


@pytest.mark.parametrize("how", [Normalise((-1.0, 2.0), (6e-39, 6e-39)), Normalise((0.0, 1.0), (3e35, 3e35))])
def test_what_is_taken_can_be_computed_in_float32(how: Normalise) -> None:
    pixels = np.array([[0, 0], [255, 255]], np.uint8)
    wanted = (pixels / 255 - how.mean) / how.std
    np.testing.assert_allclose(normalised(pixels, how), wanted, rtol=1e-6)


def test_a_configuration_without_it_reads_and_writes_as_before() -> None:
    document = to_json(CONFIG)
    assert isinstance(document, dict)
    assert "normalise" not in document
    assert from_json(RunConfig, document) == CONFIG
    with pytest.raises(CodecError, match=r"\$\.normalise\.std: expected a list, found 3"):
        from_json(RunConfig, document | {"normalise": {"type": "Normalise", "mean": [0.5], "std": 3}})
    with pytest.raises(CodecError, match="std must be above 0"):
        from_json(RunConfig, document | {"normalise": {"type": "Normalise", "mean": [0.5], "std": [0.0]}})
    del document["seed"]
    with pytest.raises(CodecError, match="RunConfig lacks 'seed'"):
        from_json(RunConfig, document)


def test_later_fields_round_trip_where_they_say_something() -> None:
    for initial in (Initial("zeros"), Initial("values", values=(0.5, -1.25))):
        document = json.loads(json.dumps(to_json(initial)))
        assert ("values" in document) == bool(initial.values)
        assert from_json(Initial, document) == initial
