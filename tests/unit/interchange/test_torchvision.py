"""Parameters under torchvision's names: the names themselves, the layouts against PyTorch, files, and refusals."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

import trc
from trc.diagnostics import CompileError
from trc.interchange.parameters import LeafKind, leaves
from trc.interchange.torchvision import ARCHITECTURES, export_file, import_file, module_names, tensor_names, to_torch
from trc.models import ZOO, lenet5, mobilenet_v2, resnet18, resnet50

Arrays = dict[str, NDArray[Any]]

# Entries of torchvision 0.28.0's state_dict()s, and the SHA-256 of their sorted lines "name [shape]".
TORCHVISION = {
    "resnet18": (122, "867b8d8ae95f5a28c42c5b8a8409d5869ea42922a87e779dc263f79d0c746ff2"),
    "resnet34": (218, "d6dbfa48843359d6e6792fe97274f873469f1ad536633545ef9326764e47ce48"),
    "resnet50": (320, "2d5b8870b35e15302b693633772b7dd09604c71f966194756edea01b1c1ca347"),
    "resnet101": (626, "83dfe6275c4f12d90067c4db86487930f734fb14c7b60366bff637c57cebd337"),
    "resnet152": (932, "f11957010a75631ad37c790e6d15da6b22dcc622d2758c32199470ca25686cc6"),
    "vgg11_bn": (62, "fed2755038a74a3e8ac7b356d93c975df3a22bf964476c0c747c03b2bde7cb18"),
    "vgg13_bn": (76, "1320c3bf26ac7c282a698a76c62656897bc3f05a9abb9fddd5f2f49f79fe0206"),
    "vgg16_bn": (97, "e238651c9f050805932a596a13886843e14bd40069f6b2214ab574efceb94dc5"),
    "vgg19_bn": (118, "091b7131554bd4ea706a0e319a92ec20d395b37b7ffb801672eb672372ef2919"),
    "mobilenet_v2": (314, "b37e2a9130e6341bc6158c07707da3e63bbde46fdbffb1ff4d42ea45ff281e7e"),
}


class Hollow(dict[str, Any]):
    """Arrays of the right shapes without memory of their own."""

    def __init__(self, model: ModuleOp) -> None:
        super().__init__((name, np.broadcast_to(np.float32(0), shape)) for name, shape in shapes(model))


def shapes(model: ModuleOp) -> Iterator[tuple[str, tuple[int, ...]]]:
    for leaf in leaves(model):
        outputs = leaf.weight[3] if leaf.kind is LeafKind.NORM else leaf.weight[0]
        for part in leaf.tensors:
            yield f"{leaf.name}.{part}", leaf.weight if part == "weight" else (1, 1, 1, outputs)


def drawn(model: ModuleOp, seed: int = 0) -> Arrays:
    """Random arrays of all bit patterns that are numbers, signed zeros and subnormals included."""
    generator = np.random.default_rng(seed)

    def draw(shape: tuple[int, ...]) -> NDArray[Any]:
        bits = generator.integers(0, 1 << 32, shape, np.uint32).view(np.float32)
        return np.where(np.isfinite(bits), bits, np.float32(-0.0))

    return {name: draw(shape) for name, shape in shapes(model)}


def small(name: str) -> ModuleOp:
    """A network of the zoo with few classes; those with fully connected layers on maps also at a small size."""
    sizes = {"mlp": (4, 3, 2), "lenet5": (12, 16, 1)}
    return trc.lower(ZOO[name](7, sizes.get(name, (64, 32, 3))), to="arch")


# --- names ----------------------------------------------------------------------------------------------------------


def test_all_networks_of_the_zoo() -> None:
    assert set(ARCHITECTURES) == set(ZOO)


# A VGG is half a gigabyte, so that one of the two forms must do.
@pytest.mark.parametrize(
    ("name", "fuse"), [(name, fuse) for name in TORCHVISION for fuse in (False, True) if fuse or "vgg" not in name]
)
def test_names_and_shapes_are_torchvisions(name: str, fuse: bool) -> None:
    model = trc.lower(ZOO[name](), to="arch", fuse=fuse)
    found = sorted((key, list(array.shape)) for key, array in to_torch(Hollow(model), model).items())
    text = "\n".join(f"{key} {shape}" for key, shape in found)
    assert (len(found), hashlib.sha256(text.encode()).hexdigest()) == TORCHVISION[name]


@pytest.mark.parametrize("name", TORCHVISION)
def test_against_an_installed_torchvision(name: str) -> None:
    try:
        models = importlib.import_module("torchvision.models")
    except Exception as err:  # it also fails where it was built for another PyTorch
        pytest.skip(f"no torchvision that works: {err}")
    with torch.device("meta"):
        state = getattr(models, name)().state_dict()
    names = tensor_names(trc.lower(ZOO[name](), to="arch"))
    assert set(names.values()) == {key for key in state if not key.endswith("num_batches_tracked")}


def test_some_names() -> None:
    model = trc.lower(resnet50(), to="arch")
    names = module_names(model)
    assert [names[n] for n in ("conv1", "conv2", "bn2", "conv3", "fc1")] == [
        "conv1",
        "layer1.0.downsample.0",
        "layer1.0.downsample.1",
        "layer1.0.conv1",
        "fc",
    ]
    assert tensor_names(model)["bn53.running_var"] == "layer4.2.bn3.running_var"
    assert module_names(trc.lower(mobilenet_v2(), to="arch"))["conv6"] == "features.2.conv.2"
    assert set(module_names(small("lenet5")).items()) == {(n, n) for n in ("conv1", "conv2", "fc1", "fc2", "fc3")}


def test_layers_may_have_names_of_their_own() -> None:
    text = str(resnet18(5, (32, 32, 3))).replace("gap_fc(5)", 'gap_fc(5, name="head")')
    net = trc.parse_blueprint(text.replace("7, 2, 3)", '3, 1, 1, name="stem")'))
    names = module_names(trc.lower(net, to="arch"), "resnet18")
    assert names["stem.conv1"] == "conv1"
    assert names["head.fc1"] == "fc"


# --- layouts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlp", "lenet5", "nin", "resnet18", "mobilenet_v2"])
def test_both_ways_bit_for_bit(name: str, tmp_path: Path) -> None:
    model = small(name)
    tensors = drawn(model)
    path = export_file(tensors, model, tmp_path / "deep" / "net.safetensors")
    again = import_file(path, model, {n: np.zeros_like(a) for n, a in tensors.items()})
    assert again.keys() == tensors.keys()
    for key, array in tensors.items():
        assert again[key].dtype == array.dtype
        assert again[key].tobytes() == array.tobytes(), key
    twice = export_file(again, model, tmp_path / "again.safetensors")
    assert twice.read_bytes() == path.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["again.safetensors", "deep"]


def test_numbers_stay_where_pytorch_has_them() -> None:
    net = trc.BluePrint(
        trc.seq(trc.conv(8, 3, p=1), trc.maxpool(2, 2), trc.flatten(), trc.bn(), trc.relu(), trc.fc(5), trc.fc(2)),
        name="lenet5",
        input=(6, 4, 2),
    )
    model = trc.lower(net, to="arch", fuse=False)
    generator = np.random.default_rng(1)
    tensors = {name: np.abs(generator.standard_normal(shape)).astype(np.float32) for name, shape in shapes(model)}
    state = {key: torch.from_numpy(array.copy()) for key, array in to_torch(tensors, model).items()}
    x = generator.standard_normal((3, 6, 4, 2)).astype(np.float32)

    # PyTorch, NCHW.
    conv, norm = torch.nn.Conv2d(2, 8, 3, padding=1, bias=False), torch.nn.BatchNorm1d(48)
    fc1, fc2 = torch.nn.Linear(48, 5), torch.nn.Linear(5, 2)
    for module, name in ((conv, "conv1"), (norm, "bn1"), (fc1, "fc1"), (fc2, "fc2")):
        module.load_state_dict({k.removeprefix(f"{name}."): v for k, v in state.items() if k.startswith(f"{name}.")})
    flow: list[torch.nn.Module] = [conv, torch.nn.MaxPool2d(2), torch.nn.Flatten(), norm, torch.nn.ReLU(), fc1, fc2]
    reference = torch.nn.Sequential(*flow).eval()(torch.from_numpy(x.transpose(0, 3, 1, 2).copy()))

    # NumPy with trc's own layouts, NHWC.
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    y = np.einsum("nhwcrs,krsc->nhwk", windows, tensors["conv1.weight"])
    y = y.reshape(3, 3, 2, 2, 2, 8).max((2, 4)).reshape(3, 48)
    mean, var = (tensors[f"bn1.running_{s}"].reshape(-1) for s in ("mean", "var"))
    y = (y - mean) / np.sqrt(var + 1e-5) * tensors["bn1.weight"].reshape(-1) + tensors["bn1.bias"].reshape(-1)
    y = np.maximum(y, 0)
    for name in ("fc1", "fc2"):
        weight = tensors[f"{name}.weight"]
        y = y @ weight.reshape(weight.shape[0], -1).T + tensors[f"{name}.bias"].reshape(-1)
    np.testing.assert_allclose(y, reference.detach().numpy(), rtol=2e-4)


def test_first_fully_connected_layer_of_vgg_is_in_chw_order() -> None:
    net = trc.parse_blueprint(str(ZOO["vgg11_bn"](3, (64, 96, 3))).replace("fc(4096)", "fc(4)"))
    model = trc.lower(net, to="arch")
    tensors: Arrays = dict(Hollow(model))
    h, w, c = 2, 3, 512
    weight = np.arange(4 * h * w * c, dtype=np.float32).reshape(4, h, w, c)
    tensors["fc1.weight"] = weight.reshape(4, 1, 1, -1)
    exported = to_torch(tensors, model)["classifier.0.weight"]
    for out, row, column, channel in ((0, 0, 0, 0), (3, 1, 2, 511), (2, 0, 1, 17), (1, 1, 0, 256)):
        assert exported[out, (channel * h + row) * w + column] == weight[out, row, column, channel]


# --- files ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def written(tmp_path: Path) -> tuple[ModuleOp, Arrays, Path]:
    model = trc.lower(lenet5(5, (12, 12, 1), batch_norm=True), to="arch")
    tensors = drawn(model)
    return model, tensors, export_file(tensors, model, tmp_path / "net.safetensors")


def test_pytorch_reads_the_file_and_writes_it(written: tuple[ModuleOp, Arrays, Path], tmp_path: Path) -> None:
    model, tensors, path = written
    state = safetensors.torch.load_file(path)
    assert state["bn1.num_batches_tracked"].dtype == torch.int64
    assert state["bn1.num_batches_tracked"].shape == ()
    net = torch.nn.Sequential()
    net.add_module("bn1", torch.nn.BatchNorm2d(8))
    net.load_state_dict({k: v for k, v in state.items() if k.startswith("bn1.")})
    state["bn1.num_batches_tracked"].fill_(9)
    del state["bn2.num_batches_tracked"]
    safetensors.torch.save_file(state, tmp_path / "torch.safetensors")
    again = import_file(tmp_path / "torch.safetensors", model, tensors)
    assert all(again[n].tobytes() == a.tobytes() for n, a in tensors.items())


def changed(path: Path, change: dict[str, NDArray[Any] | None]) -> Path:
    arrays = safetensors.numpy.load_file(path)
    for name, array in change.items():
        if array is None:
            del arrays[name]
        else:
            arrays[name] = array
    path.write_bytes(safetensors.numpy.save(arrays))
    return path


def test_everything_that_does_not_fit_is_named(written: tuple[ModuleOp, Arrays, Path]) -> None:
    model, tensors, path = written
    zeros = np.zeros
    changed(
        path,
        {
            "fc1.bias": None,
            "fc4.weight": zeros((2, 2), np.float32),
            "conv1.weight": zeros((8, 5, 5, 8), np.float32),
            "bn1.weight": zeros(8, np.int32),
            "bn1.bias": zeros(8),
        },
    )
    with pytest.raises(CompileError) as caught:
        import_file(path, model, tensors)
    for text in (
        "it lacks 'fc1.bias' [120]",
        "the network has no 'fc4.weight' [2, 2]",
        "'conv1.weight' is [8, 5, 5, 8] there, [8, 8, 5, 5] in the network ('conv1.weight')",
        "'bn1.weight' is of type I32; F16, F32, F64 can be read",
        "'bn1.bias' is of type F64, which float32 ('bn1.bias') cannot hold exactly",
    ):
        assert text in str(caught.value)


def test_wider_types_hold_narrower_ones(written: tuple[ModuleOp, Arrays, Path]) -> None:
    model, tensors, path = written
    half = np.linspace(-1, 1, 8, dtype=np.float16)
    changed(path, {"bn1.bias": half})
    assert np.array_equal(import_file(path, model, tensors)["bn1.bias"].reshape(-1), half)
    wide = import_file(path, model, {n: a.astype(np.float64) for n, a in tensors.items()})
    assert all(wide[n].dtype == np.float64 for n in tensors)
    assert np.array_equal(wide["fc1.weight"], tensors["fc1.weight"])


def test_half_types_that_numpy_lacks(written: tuple[ModuleOp, Arrays, Path], tmp_path: Path) -> None:
    model, tensors, path = written
    state = safetensors.torch.load_file(path)
    state["fc1.bias"] = state["fc1.bias"].bfloat16()
    safetensors.torch.save_file(state, path)
    with pytest.raises(CompileError, match=r"'fc1\.bias' is of type BF16"):
        import_file(path, model, tensors)


def test_damaged_files(written: tuple[ModuleOp, Arrays, Path], tmp_path: Path) -> None:
    model, tensors, path = written
    data = path.read_bytes()
    for broken in (b"", b"\xff" * 40, data[:-1], data[: len(data) // 2], b"\x00" * 8 + data, b"PK\x03\x04" + data):
        path.write_bytes(broken)
        with pytest.raises(CompileError, match="damaged, or not a safetensors file"):
            import_file(path, model, tensors)
    with pytest.raises(CompileError, match="no such file"):
        import_file(tmp_path / "none", model, tensors)
    with pytest.raises(CompileError, match="is a folder"):
        import_file(tmp_path, model, tensors)


def test_a_failed_export_leaves_nothing(written: tuple[ModuleOp, Arrays, Path], tmp_path: Path) -> None:
    model, tensors, path = written
    before = path.read_bytes()
    del tensors["fc2.bias"]
    tensors["bn1.weight"] = np.zeros((1, 1, 1, 9), np.float32)
    with pytest.raises(
        CompileError, match=r"'bn1\.weight' is \[1, 1, 1, 9\], not \[1, 1, 1, 8\]; there is no tensor 'fc2\.bias'"
    ):
        export_file(tensors, model, path)
    assert path.read_bytes() == before
    with pytest.raises(CompileError, match="cannot be written"):
        export_file(drawn(model), model, path / "inside")
    assert [p.name for p in tmp_path.iterdir()] == ["net.safetensors"]


def test_other_architectures_are_refused() -> None:
    model = trc.lower(trc.BluePrint(trc.fc(3), name="resnet50d", input=(2, 2, 1)), to="arch")
    with pytest.raises(CompileError, match="network called 'resnet50d'; did you mean 'resnet50'"):
        tensor_names(model)
    with pytest.raises(CompileError, match="'fc1', is a fully connected layer, where vgg11_bn has the convolution"):
        tensor_names(model, "vgg11_bn")
    with pytest.raises(CompileError, match="the network is no resnet34: its layer with parameters number"):
        tensor_names(trc.lower(resnet18(), to="arch"), "resnet34")
    with pytest.raises(CompileError, match="choose one of mlp"):
        tensor_names(model, "zzz")
    flat = trc.seq(trc.conv(8, 3, p=1), trc.flatten(), trc.conv(8, 1), trc.fc(3))
    with pytest.raises(CompileError, match="layer 'conv2': a convolution of a flattened map has no counterpart"):
        tensor_names(trc.lower(flat, to="arch", input=(4, 4, 1)), "lenet5")


# --- executables ----------------------------------------------------------------------------------------------------


def test_executable(tmp_path: Path) -> None:
    net = ZOO["mlp"](4, (3, 2, 2))
    one, other = (trc.compile(net, batch=4, seed=seed) for seed in (1, 2))
    path = one.export_torchvision(tmp_path / "mlp.safetensors")
    assert safetensors.numpy.load_file(path)["fc1.weight"].shape == (1024, 12)
    assert not np.array_equal(one.tensors["fc1.weight"], other.tensors["fc1.weight"])
    other.import_torchvision(path)
    for name in ("fc1.weight", "fc1.bias", "fc4.weight"):
        assert np.array_equal(one.tensors[name], other.tensors[name])
    # A loaded bundle knows its network from its text.
    loaded = trc.load(one.save(tmp_path / "bundle"))
    assert loaded.export_torchvision(tmp_path / "again.safetensors").read_bytes() == path.read_bytes()
    with pytest.raises(CompileError, match="the network is no resnet18"):
        loaded.import_torchvision(path, "resnet18")
