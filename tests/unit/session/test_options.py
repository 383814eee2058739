"""Defaults, and messages that name what is missing."""

import pytest

import trc
from trc.diagnostics import CompileError
from trc.session.options import CompileOptions, make_config, resolve_input

NET = trc.BluePrint(trc.seq(trc.fc(4), trc.relu(), trc.fc(3)), name="net", input=(2, 3, 1))
BARE = trc.BluePrint(trc.seq(trc.fc(3)), name="bare")


def test_only_the_blueprint_is_obligatory() -> None:
    config = make_config(NET, {}, 3)
    assert config.input == (2, 3, 1)
    assert config.train_samples is None
    assert config.val_batch == config.batch
    assert config.train_resolution == ((2, 3), (2, 3))


def test_resolutions() -> None:
    both = make_config(NET, {"train_resolution": ((2, 3), (4, 6)), "val_resolution": 8}, 3)
    assert both.train_resolution == ((2, 3), (4, 6))
    assert both.val_resolution == (8, 8)
    assert make_config(NET, {"train_resolution": (4, 6)}, 3).train_resolution == ((4, 6), (4, 6))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 0}, "batch must be a whole number of at least 1, not 0"),
        ({"batch": True}, "batch must be a whole number"),
        ({"epochs": -1}, "epochs must be"),
        ({"precision": "fp8"}, "unknown precision 'fp8'; choose one of"),
        ({"optimizer": "adam"}, "optimizer must be one of trc.SGD"),
        ({"schedule": 0.1}, "schedule must be one of trc.Constant"),
        ({"loss": "ce"}, "loss must be trc.CrossEntropy"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"val_resolution": "big"}, "val_resolution must be a side in pixels"),
        (
            {"schedule": trc.CosineAnnealing()},
            "CosineAnnealing needs to know .*: pass epochs and train_samples",
        ),
        ({"schedule": trc.CosineAnnealing(), "epochs": 3}, "pass train_samples, or use"),
        ({"batchsize": 3}, "has no option 'batchsize'; did you mean 'batch'"),
    ],
)
def test_messages(options: CompileOptions, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        make_config(NET, options, 3)


def test_an_unknown_input_is_named() -> None:
    with pytest.raises(CompileError, match=r"the input size of 'bare' is unknown: write input\(height"):
        resolve_input(BARE, None)
    assert resolve_input(BARE, (1, 2, 3)) == (1, 2, 3)
