"""The arch dialect: constructors, texts, shapes, checks."""

from __future__ import annotations

import shutil
import subprocess
from io import StringIO
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp, TensorType, f32
from xdsl.ir import Block, Region
from xdsl.irdl import IRDLOperation
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.test_value import create_ssa_value

from trc.dialects import arch
from trc.dialects.arch import ShapeProblem, shape_of, tensor_of
from trc.dialects.arch.base import window
from trc.dialects.parsing import parse_module
from trc.dialects.verifier import verify

X = create_ssa_value(tensor_of((None, 8, 8, 4)))
LEAVES = [
    arch.ConvOp(X, 8, 3, 2, 1, 2, True, layer="conv1"),
    arch.ConvOp(X, None, 3, padding=1, depthwise=True),
    arch.BnOp(X),
    arch.Bn1dOp(X, 0.2, 1e-3),
    arch.Bn2dOp(X, eps=1e-7),
    arch.ReluOp(X, layer="relu1"),
    arch.TanhOp(X),
    arch.SiluOp(X),
    arch.Relu6Op(X),
    arch.LeakyReluOp(X, 0.2),
    arch.HardswishOp(X),
    arch.EluOp(X, 0.5),
    arch.SigmoidOp(X),
    arch.DropoutOp(X, 0.3),
    arch.FlattenOp(X),
    arch.ChannelPaddingOp(X),
    arch.MaxPoolOp(X, 2, 2),
    arch.AvgPoolOp(X, 3, 2, 1),
    arch.GapOp(X),
    arch.FcOp(X, 10, False),
    arch.IdentityOp(X),
    arch.AddOp(X, X),
    arch.SoftmaxCeOp(X, 256, 0.1),
    arch.CbrOp(X, 8, 3, 1, 1, act="relu6"),
    arch.CbrpOp(X, 8, 3, pool_kernel=2, pool_stride=2),
    arch.GapFcOp(X, 10, layer="gap1", parts=["gap1", "fc1"]),
    arch.BottleneckOp(X, 2, 4),
    arch.BasicBlockOp(X, 8, 2, "projection", "relu6"),
    arch.InvertedResidualOp(X, None, 8),
    arch.InvertedResidualOp(X, 24, 4, 1, "identity"),
]
SHAPES = {
    "arch.conv": [(4, 4, 8), (8, 8, 4)],
    "arch.flatten": [(1, 1, 256)],
    "arch.channel_padding": [(8, 8, 8)],
    "arch.max_pool": [(4, 4, 4)],
    "arch.avg_pool": [(4, 4, 4)],
    "arch.gap": [(1, 1, 4)],
    "arch.fc": [(1, 1, 10)],
    "arch.cbr": [(8, 8, 8)],
    "arch.cbrp": [(3, 3, 8)],
    "arch.gap_fc": [(1, 1, 10)],
    "arch.bottleneck": [(8, 8, 4)],
    "arch.basic_block": [(4, 4, 8)],
    "arch.inverted_residual": [(8, 8, 8), (8, 8, 4)],
}


def body(op: arch.LayerOp) -> Region:
    """A body that holds a copy of one layer."""
    block = Block(arg_types=[X.type])
    copy = op.clone({X: block.args[0]})
    block.add_ops([copy, arch.YieldOp(copy.result)])
    return Region(block)


def model_of(*ops: IRDLOperation) -> ModuleOp:
    """A model that gives the last layer's result."""
    block = Block(arg_types=[X.type])
    copies = [op.clone({X: block.args[0]}) for op in ops]
    block.add_ops([*copies, arch.OutputOp(copies[-1].results[0])])
    return ModuleOp([arch.ModelOp("m", Region(block))])


def generic(module: ModuleOp) -> str:
    out = StringIO()
    Printer(out, print_generic_format=True).print_op(module)
    return out.getvalue()


STRUCTURE = [
    arch.SeqOp(X, body(LEAVES[0]), "stem"),
    arch.RepeatOp(X, body(LEAVES[5]), 3),
    arch.Add2Op(X, body(LEAVES[5]), body(LEAVES[6]), name="sum"),
    arch.BlockOp(X, "RESNET_1_3_1", 8, 16),
    arch.BlockOp(X, "MB_E6_K3_DS", None, 16, "b"),
]


@pytest.mark.parametrize("op", [*LEAVES, *STRUCTURE], ids=lambda op: op.name)
def test_constructed_operation_verifies_and_reads_back(op: IRDLOperation) -> None:
    module = model_of(op)
    verify(module)
    module.verify()
    text = str(module)
    assert str(parse_module(text, "t.mlir")) == text
    assert str(parse_module(generic(module), "t.mlir")) == text


def test_every_operation_of_the_dialect_is_constructed_here() -> None:
    seen = {type(op) for op in (*LEAVES, *STRUCTURE)} | {arch.ModelOp, arch.OutputOp, arch.YieldOp}
    assert seen == set(arch.Arch.operations)


def test_shapes_of_every_layer() -> None:
    wanted = {name: list(shapes) for name, shapes in SHAPES.items()}
    for op in LEAVES:
        found = op.infer_shape([shape_of(X)] * len(op.operands))
        queue = wanted.get(op.name)
        assert found == (None, *(queue.pop(0) if queue else (8, 8, 4))), op.name


def test_unknown_sizes_stay_unknown_or_follow_from_the_parameters() -> None:
    x = (None, None, None, None)
    assert arch.ConvOp(X, 8, 3).infer_shape([x]) == (None, None, None, 8)
    assert arch.FlattenOp(X).infer_shape([x]) == (None, 1, 1, None)
    assert arch.GapOp(X).infer_shape([x]) == (None, 1, 1, None)
    assert arch.ChannelPaddingOp(X).infer_shape([x]) == x
    assert arch.AddOp(X, X).infer_shape([x, (None, 3, None, 5)]) == (None, 3, None, 5)


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding", "places"),
    [(28, 3, 1, 1, 28), (28, 3, 2, 1, 14), (7, 7, 1, 0, 1), (5, 2, 2, 0, 2), (1, 1, 3, 0, 1), (224, 7, 2, 3, 112)],
)
def test_window_formula(size: int, kernel: int, stride: int, padding: int, places: int) -> None:
    assert window(size, kernel, stride, padding, "height") == places


def test_window_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ShapeProblem, match="a kernel of 5 does not fit into width 2 padded by 1"):
        window(2, 5, 1, 1, "width")


def test_verifier_of_xdsl_names_the_layer_too() -> None:
    op = arch.FcOp(X, 0, layer="head")
    with pytest.raises(VerifyException, match="layer 'head': out_features is 0 and should be at least 1"):
        op.verify()


def test_layer_without_a_name_is_called_by_its_kind() -> None:
    assert arch.FcOp(X, 3).layer_name == "fc"
    assert arch.FcOp(X, 3, layer="a").leaf_names == ("a",)
    assert LEAVES[25].leaf_names == ("gap1", "fc1")


@pytest.mark.parametrize(
    "make",
    [
        lambda: arch.CbrOp(X, 8, 3, act="tanh"),
        lambda: arch.BasicBlockOp(X, 8, shortcut="maybe"),
        lambda: arch.BlockOp(X, "RESNET_9", None, 4),
        lambda: arch.FcOp(X, 2**70),
    ],
)
def test_constructors_refuse_unknown_words_and_huge_numbers(make: object) -> None:
    assert callable(make)
    with pytest.raises(ValueError):
        make()


def test_constructors_refuse_wrong_types() -> None:
    with pytest.raises(TypeError, match="out_features is '3' and should be an integer"):
        arch.FcOp(X, "3")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="bias is 1 and should be true or false"):
        arch.FcOp(X, 3, 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="p is 'x' and should be a number"):
        arch.DropoutOp(X, "x")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "type_", [TensorType(f32, [2, 8, 8, 4]), TensorType(f32, [-1, 8, 8]), TensorType(f32, [-1, 0, 1, 1]), f32]
)
def test_types_that_are_no_layers_value(type_: object) -> None:
    with pytest.raises(VerifyException):
        shape_of(create_ssa_value(type_))  # type: ignore[arg-type]


def test_places_come_from_the_text() -> None:
    module = parse_module(
        "arch.model @m(%x: tensor<?x8x8x4xf32>) {\n  %0 = arch.relu %x\n  arch.output %0\n}", "net.mlir"
    )
    relu = next(op for op in module.walk() if isinstance(op, arch.ReluOp))
    assert "net.mlir" in str(relu.location)


def test_generic_text_is_mlir() -> None:
    tool = shutil.which("mlir-opt-22") or shutil.which("mlir-opt")
    if tool is None:
        pytest.skip("mlir-opt is not installed")
    module = model_of(*LEAVES, *STRUCTURE)
    command = [tool, "--allow-unregistered-dialect", "--mlir-print-op-generic"]
    done = subprocess.run(command, input=generic(module), text=True, capture_output=True, check=True, timeout=60)
    back = parse_module(done.stdout, "back.mlir")
    verify(back)
    assert [op.name for op in back.walk()] == [op.name for op in module.walk()]
    assert [op.properties for op in back.walk()] == [op.properties for op in module.walk()]


def test_no_file_is_too_long() -> None:
    for path in Path(arch.__file__).parent.glob("*.py"):
        assert len(path.read_text().splitlines()) <= 600, path
