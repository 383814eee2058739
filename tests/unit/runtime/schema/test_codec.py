"""Strict JSON for frozen dataclasses."""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import pytest

from trc_runtime.schema.codec import LATER, CodecError, from_json, to_json
from trc_runtime.schema.config import SGD, Adam, AdamW, CosineAnnealing, MultiStep


class Colour(Enum):
    RED = 1
    BLUE = 2


class Point(NamedTuple):
    x: int
    y: int


@dataclass(frozen=True)
class Thing:
    colour: Colour
    point: Point
    sizes: tuple[int, ...]
    maybe: float | None
    table: dict[str, bool | int | float | str]
    optimizer: SGD | Adam | AdamW


THING = Thing(Colour.BLUE, Point(1, 2), (3, 4), None, {"a": True, "b": 1, "c": 1.5, "d": "x"}, AdamW(eps=1e-6))


def test_round_trip() -> None:
    assert from_json(Thing, to_json(THING)) == THING


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": "GREEN"}, r"\$\.colour: expected a Colour, found 'GREEN'"),
        ({"point": [1]}, r"\$\.point"),
        ({"sizes": [1, True]}, r"\$\.sizes\[1\]: expected int, found True"),
        ({"sizes": "abc"}, r"\$\.sizes: expected a list"),
        ({"maybe": "x"}, r"\$\.maybe: expected float or NoneType"),
        ({"table": {"a": []}}, r"\$\.table\.a"),
        ({"optimizer": {"type": "Lion"}}, r"\$\.optimizer\.type: expected one of SGD, Adam, AdamW, found 'Lion'"),
        ({"extra": 1}, "unknown key 'extra' in Thing"),
        ({"type": "Other"}, r"\$\.type: expected 'Thing'"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, object], message: str) -> None:
    document = to_json(THING)
    assert isinstance(document, dict)
    with pytest.raises(CodecError, match=message):
        from_json(Thing, document | change)


@dataclass(frozen=True)
class Grown:
    size: int
    later: SGD | None = field(default=None, metadata=LATER)


def test_an_optional_field_is_written_where_it_says_something() -> None:
    assert to_json(Grown(1)) == {"type": "Grown", "size": 1}
    assert from_json(Grown, {"type": "Grown", "size": 1}) == Grown(1)
    for thing in (Grown(1), Grown(1, SGD(momentum=0.9))):
        assert from_json(Grown, to_json(thing)) == thing
    with pytest.raises(CodecError, match=r"\$\.later\.type: expected one of SGD"):
        from_json(Grown, {"type": "Grown", "size": 1, "later": {"type": "Lion"}})
    with pytest.raises(CodecError, match="Grown lacks 'size'"):
        from_json(Grown, {"type": "Grown", "later": None})
    with pytest.raises(CodecError, match="unknown key 'latter' in Grown"):
        from_json(Grown, {"type": "Grown", "size": 1, "latter": None})


def test_missing_key() -> None:
    document = to_json(THING)
    assert isinstance(document, dict)
    del document["sizes"]
    with pytest.raises(CodecError, match="Thing lacks 'sizes'"):
        from_json(Thing, document)


def test_values_are_checked_by_their_class() -> None:
    document = to_json(SGD(momentum=0.9))
    assert isinstance(document, dict)
    with pytest.raises(CodecError, match="momentum must be >= 0"):
        from_json(SGD, document | {"momentum": -1.0})


def test_config_messages() -> None:
    with pytest.raises(ValueError, match="nesterov needs momentum"):
        SGD(nesterov=True)
    with pytest.raises(ValueError, match="betas must be two numbers between 0 and 1"):
        Adam(betas=(0.9, 1.0))
    with pytest.raises(ValueError, match="eta_min must be between 0 and base_lr"):
        CosineAnnealing(base_lr=1e-3, eta_min=1.0)
    with pytest.raises(ValueError, match="milestones must rise"):
        MultiStep(milestones=(5, 5))
    with pytest.raises(ValueError, match="by must be 'step' or 'epoch'"):
        CosineAnnealing(by="batch")
