"""YAML of the ArchPlan: lossless, and refusing what it does not know."""

from pathlib import Path

import pytest
import yaml

import trc
from trc.diagnostics import CompileError
from trc.interchange.arch_yaml import from_yaml, to_yaml

MODELS = sorted(Path("examples/models").glob("*.bp"))
SMALL = trc.BluePrint(
    trc.seq(trc.conv(4, 3, p=1), trc.bn(momentum=0.2, eps=1e-3), trc.leaky_relu(), trc.elu(), trc.fc(3, bias=False)),
    name="small",
    input=(5, 5, 1),
)


@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_every_model_round_trips(path: Path, fuse: bool) -> None:
    module = trc.lower(path, to="arch", fuse=fuse)
    again = from_yaml(to_yaml(module))
    assert str(again) == str(module)


def test_parameters_survive() -> None:
    document = yaml.safe_load(to_yaml(trc.lower(SMALL, to="arch", fuse=False)))
    layers = {layer["name"]: layer for layer in document["layers"]}
    assert layers["bn1"]["params"] == {"momentum": 0.2, "eps": 1e-3}
    assert layers["fc1"]["params"]["bias"] is False
    assert document["input"] == [5, 5, 1]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("version: trc-arch-1", "version: 9", "version is 9, this trc reads 'trc-arch-1'"),
        ("model: small", "modle: small", "unknown key 'modle'; did you mean 'model'"),
        ("op: fc", "op: fcc", "unknown op 'fcc'; did you mean 'fc'"),
        ("eps: 0.001", "epsilon: 0.001", "layer 'bn1': params: unknown key 'epsilon'"),
        ("inputs: [conv1]", "inputs: [conv9]", "there is no layer 'conv9' above; did you mean 'conv1'"),
        ("inputs: [conv1]", "inputs: [conv1, conv1]", "layer 'bn1': bn2d takes 1 inputs, not 2"),
        ("name: bn1", "name: conv1", "the name 'conv1' is given twice"),
        ("output: softmax_ce", "output: 3", "output: there is no layer 3"),
        ("input: [5, 5, 1]", "input: [5, 5]", r"input must be \[height, width, channels\]"),
    ],
)
def test_what_does_not_fit_is_named(old: str, new: str, message: str) -> None:
    text = to_yaml(trc.lower(SMALL, to="arch", fuse=False))
    assert old in text
    with pytest.raises(CompileError, match=message):
        from_yaml(text.replace(old, new, 1))


def test_garbage() -> None:
    for text in ("", "[1, 2]", "{a: [", "&a [*a]", "version: !!python/object:os.system {}"):
        with pytest.raises(CompileError):
            from_yaml(text)
