"""The verifier finds all problems, in the order of the text, and gives each its place."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, ModuleOp, StringAttr, i32
from xdsl.ir import Block, Region

import trc.layers  # noqa: F401  # pyright: ignore[reportUnusedImport]
from trc.diagnostics import CompileError
from trc.dialects.memplan import PlanOp, RegionOp, TensorOp
from trc.dialects.parsing import parse_module
from trc.dialects.verifier import problems, verify
from trc_runtime.schema.dtypes import DType
from trc_runtime.schema.regions import Region as MemoryRegion


def messages(text: str) -> list[str]:
    return [str(problem) for problem in problems(parse_module(text, "x.mlir"))]


def test_sound_module():
    module = parse_module("memplan.region POOL at 0 bytes 256")
    assert problems(module) == []
    verify(module)


def test_all_problems_in_order():
    found = messages(
        "memplan.region POOL at 1 bytes 3\nmemplan.plan @m {mode = x, total = 5}\nmemplan.region Q at 0 bytes 0"
    )
    assert [m.split(" ")[0] for m in found] == ["x.mlir:1:1:"] * 2 + ["x.mlir:2:1:"] * 2 + ["x.mlir:3:1:"]


def test_verify_raises_all():
    with pytest.raises(CompileError) as caught:
        verify(parse_module("memplan.region POOL at 1 bytes 3", "x.mlir"))
    assert len(caught.value.problems) == 2


def test_use_before_definition():
    (found,) = messages(
        """arch.model @m(%input: tensor<?x1x1x4xf32>) {
             %1 = "arch.relu"(%0) : (tensor<?x1x1x4xf32>) -> tensor<?x1x1x4xf32>
             %0 = arch.relu %input : tensor<?x1x1x4xf32>
             arch.output %1
           }"""
    )
    assert found == "x.mlir:2:14: error: arch.relu: operand 0 is used before its definition"


def test_missing_terminator():
    found = messages("arch.model @m(%input: tensor<?x1x1x4xf32>) {\n  %0 = arch.relu %input\n}")
    assert any("arch.model: its last operation is arch.relu, which is no terminator" in m for m in found)


def test_terminator_in_the_middle():
    found = messages(
        """arch.model @m(%input: tensor<?x1x1x4xf32>) {
             arch.output %input
             %0 = arch.relu %input
             arch.output %0
           }"""
    )
    assert any("arch.output: a terminator stands last in its block" in m for m in found)


def test_repeated_symbol_names_the_first():
    found = messages("memplan.tensor @x W_FC_BIAS f32 [1, 1, 1, 1]\nmemplan.tensor @x W_FC_BIAS f32 [1, 1, 1, 1]")
    assert found == ["x.mlir:2:1: error: memplan.tensor: symbol @x is already defined at x.mlir:1:1 as memplan.tensor"]


def test_network_named_as_a_tensor():
    (found,) = messages(
        """arch.model @lr(%x: tensor<?x1x1x4xf32>) {
             arch.output %x
           }
           memplan.tensor @lr S_SCALAR_FP32 f32 [1, 1, 1, 1]"""
    )
    assert found.endswith("symbol @lr is already defined at x.mlir:1:1 as arch.model; give the network another name")


def test_module_without_a_block():
    module = ModuleOp(Region())
    (problem,) = problems(module)
    assert "one region with one block" in problem.message


def test_module_with_two_blocks():
    module = ModuleOp(Region([Block(), Block()]))
    assert problems(module)


def test_property_of_another_class():
    op = RegionOp("POOL", 0, 0)
    op.properties["offset"] = StringAttr("zero")
    tensor = TensorOp("t", MemoryRegion.W_FC_BIAS, DType.F32, [(1, 1, 1, 1)] * 6)
    tensor.properties["shapes"] = IntegerAttr(1, i32)
    plan = PlanOp("m")
    plan.properties["model"] = ArrayAttr([])
    found = problems(ModuleOp([op, tensor, plan]))
    assert len(found) == 3


def test_unknown_property():
    op = RegionOp("POOL", 0, 0)
    op.properties["colour"] = StringAttr("red")
    (problem,) = problems(ModuleOp([op]))
    assert "property 'colour' is not defined" in problem.message


def test_unsound_operations_still_define_their_symbols():
    found = messages(
        """graph.computation @train {
             graph.bucket ZERO_GRAD on UPDATE {
               graph.compute copy reads(@x) writes(@x)
             }
           }
           memplan.tensor @x W_FC_BIAS f32 [1, 1, 1, 1] at 7"""
    )
    assert len(found) == 2
    assert all("@x" in m and "not defined" not in m for m in found)


def test_nested_modules_have_their_own_symbols():
    text = "memplan.tensor @x W_FC_BIAS f32 [1, 1, 1, 1]\n"
    assert messages(f"builtin.module {{ {text} }}\nbuiltin.module {{ {text} }}\n") == []
