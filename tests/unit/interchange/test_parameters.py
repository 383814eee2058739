"""How many parameters the networks of the zoo have: the published counts, however the layers are grouped."""

from __future__ import annotations

import pytest

import trc
from trc.blueprint import import_blueprint
from trc.diagnostics import CompileError
from trc.interchange.parameters import LeafKind, leaves, parameter_count
from trc.models import ZOO, lenet5

# torchvision's, with 1000 classes; then what follows by hand from the sizes of the layers.
PUBLISHED = {
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "vgg11_bn": 132_868_840,
    "vgg13_bn": 133_053_736,
    "vgg16_bn": 138_365_992,
    "vgg19_bn": 143_678_248,
    "mobilenet_v2": 3_504_872,
    "mlp": (784 + 1) * 1024 + (1024 + 1) * 512 + (512 + 1) * 256 + (256 + 1) * 10,
    "lenet5": 8 * 25 * 8 + 16 * 25 * 8 + (5 * 5 * 16 + 1) * 120 + (120 + 1) * 88 + (88 + 1) * 10,
    "nin": 192 * 25 * 8 + 2 * 192 * 192 + 192 * 25 * 192 + 2 * 192 * 192 + 192 * 9 * 192 + 192 * 192 + 192 * 10,
}


def test_every_network_is_here() -> None:
    assert PUBLISHED.keys() == ZOO.keys()


@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("name", ZOO)
def test_counts(name: str, fuse: bool) -> None:
    assert parameter_count(trc.lower(ZOO[name](), to="arch", fuse=fuse)) == PUBLISHED[name]


NET = trc.BluePrint(
    trc.seq(
        trc.cbr(8, 3, p=1, act="relu6"),
        trc.block(16, trc.RESNET_3_3_DS),
        trc.block(4, 16, trc.RESNET_1_3_1),
        trc.mbconv(6, 16, 1),
        trc.mbconv(1, 8, 2),
        trc.group_conv(8, 4, 3, p=1, bias=True),
        trc.conv_dw(3, p=1),
        trc.flatten(),
        trc.bn(),
        trc.relu(),
        trc.fc(6),
        trc.fc(5, bias=False),
    ),
    name="net",
    input=(12, 12, 3),
)


def test_leaves_are_the_tensors_of_the_plan() -> None:
    # The plan asks the descriptors, which know nothing of `leaves`.
    for fuse in (False, True):
        found = leaves(trc.lower(NET, to="arch", fuse=fuse))
        shapes = {f"{leaf.name}.weight": leaf.weight for leaf in found}
        wanted = {f"{leaf.name}.{part}" for leaf in found for part in leaf.tensors}
        plan = trc.session.lower_to_plan(NET, fuse=fuse)
        ends = (".weight", ".bias", ".running_mean", ".running_var")
        tensors = {t.name: next(s for s in t.shapes if s) for t in plan.tensors if t.name.endswith(ends)}
        assert tensors.keys() == wanted
        assert {n: s for n, s in tensors.items() if n in shapes} == shapes


def test_maps() -> None:
    found = {leaf.name: leaf for leaf in leaves(trc.lower(NET, to="arch"))}
    assert found["fc1"].map == (3, 3, 8)
    assert found["fc2"].map == (1, 1, 6)
    flat_norm = next(leaf for leaf in found.values() if leaf.kind is LeafKind.NORM and leaf.map[0] > 1)
    assert flat_norm.map == (3, 3, 8)
    direct = trc.seq(trc.conv(8, 3, p=1), trc.maxpool(2, 2), trc.dropout(0.1), trc.fc(3))
    assert leaves(trc.lower(direct, to="arch", input=(8, 6, 1)))[-1].map == (4, 3, 8)


def test_needs_names_and_shapes() -> None:
    with pytest.raises(CompileError, match="run arch-expand-tree first"):
        leaves(import_blueprint(trc.seq(trc.add2(trc.identity(), trc.relu())), (4, 4, 1)))
    with pytest.raises(CompileError, match="does not name its parts"):
        leaves(import_blueprint(ZOO["resnet18"]()))
    with pytest.raises(CompileError, match="run arch-deduce-shapes first"):
        leaves(import_blueprint(lenet5()))
