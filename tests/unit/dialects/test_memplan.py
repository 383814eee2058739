"""memplan: plain Python values in and out, and text that reads back to the same module."""

from __future__ import annotations

from io import StringIO

import pytest
from xdsl.dialects.builtin import FileLineColLoc, IntAttr, ModuleOp, StringAttr, f80
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from trc.dialects.attributes import float_text, hint, integer, symbol
from trc.dialects.memplan import PlanOp, RegionOp, SpecOp, TensorOp
from trc.dialects.parsing import parse_module
from trc_runtime.schema.dtypes import DType, Precision
from trc_runtime.schema.graphs import Variant
from trc_runtime.schema.plan import Initial
from trc_runtime.schema.regions import Region


def text_of(module: ModuleOp, generic: bool = False) -> str:
    out = StringIO()
    Printer(out, print_generic_format=generic).print_op(module)
    return out.getvalue()


def assert_round_trips(module: ModuleOp) -> None:
    for generic in (False, True):
        text = text_of(module, generic)
        again = parse_module(text)
        assert again.is_structurally_equivalent(module)
        assert text_of(again, generic) == text


def test_spec():
    op = SpecOp(Variant.VAL_BASE, Precision.AMP_BF16, 250, 28, 32, 3)
    assert (op.name_, op.variant_, op.precision_) == ("val_base", Variant.VAL_BASE, Precision.AMP_BF16)
    assert (op.batch_, op.height_, op.width_, op.channels_) == (250, 28, 32, 3)
    assert_round_trips(ModuleOp([op]))


@pytest.mark.parametrize("precision", Precision)
def test_every_precision_round_trips(precision: Precision):
    assert_round_trips(ModuleOp([SpecOp(v, precision, 1, 1, 1, 1) for v in Variant]))


@pytest.mark.parametrize("dtype", DType)
def test_every_element_type_round_trips(dtype: DType):
    op = TensorOp("t", Region.T_WORKSPACE, dtype, [(1, 2, 3, 4)] * 6)
    assert op.dtype_ is dtype
    assert_round_trips(ModuleOp([op]))


@pytest.mark.parametrize("region", Region)
def test_every_region_round_trips(region: Region):
    op = TensorOp("t", region, DType.F32, [(1, 2, 3, 4)] * 6)
    assert op.region_ is region
    span = RegionOp(region, 512, 256)
    assert (span.name_, span.offset_, span.bytes_) == (region.name, 512, 256)
    assert_round_trips(ModuleOp([op, span]))


def test_tensor_columns():
    shapes = [(200, 1, 1, 10), (100, 1, 1, 10), None, None, (1, 1, 1, 10), None]
    op = TensorOp("fc1.output", Region.F_FEATURE_FP32, DType.F32, shapes, layer="fc1", slot=16384, offset=512)
    assert op.shapes_ == tuple(shapes)
    assert (op.name_, op.layer_, op.slot_, op.offset_) == ("fc1.output", "fc1", 16384, 512)
    assert op.initial_ == Initial("zeros")
    assert_round_trips(ModuleOp([op]))


def test_equal_columns_are_kept_once():
    op = TensorOp("w", Region.W_FC_WEIGHT, DType.F32, [(10, 1, 1, 7)] * 6)
    assert len(op.shapes) == 4
    assert op.shapes_ == ((10, 1, 1, 7),) * 6


@pytest.mark.parametrize(
    "initial",
    [
        Initial("zeros"),
        Initial("constant", 1.0),
        Initial("constant", -1e-5),
        Initial("constant", 1e300),
        Initial("kaiming_uniform", fan=784),
        Initial("kaiming_normal", fan=9),
        Initial("trunc_normal", 0.02),
        Initial("table"),
    ],
)
def test_initial_round_trips(initial: Initial):
    op = TensorOp("w", Region.W_FC_WEIGHT, DType.F32, [(10, 1, 1, 7)] * 6, initial)
    assert op.initial_ == initial
    module = ModuleOp([op])
    assert_round_trips(module)
    module.verify()


def test_slot_and_offset_can_be_set_and_removed():
    op = TensorOp("w", Region.W_FC_WEIGHT, DType.F32, [(10, 1, 1, 7)] * 6)
    assert op.slot_ is None
    assert op.offset_ is None
    op.slot_, op.offset_ = 1024, 256
    assert (op.slot_, op.offset_) == (1024, 256)
    op.slot_ = op.offset_ = None
    assert (op.slot_, op.offset_) == (None, None)


def test_plan_total_can_be_set_and_removed():
    op = PlanOp("mlp", "regions")
    assert (op.name_, op.mode_, op.total_) == ("mlp", "regions", None)
    op.total_ = 1024
    assert op.total_ == 1024
    module = ModuleOp([op])
    assert_round_trips(module)
    op.total_ = None
    assert op.total_ is None
    assert_round_trips(module)


def test_location_is_kept():
    place = FileLineColLoc(StringAttr("net.bp"), IntAttr(3), IntAttr(5))
    assert TensorOp("w", Region.W_FC_BIAS, DType.F32, [(1, 1, 1, 1)] * 6, location=place).location == place
    assert PlanOp("net", location=place).location == place


def test_wrong_columns_are_refused():
    with pytest.raises(ValueError, match="6 shape columns, not 5"):
        TensorOp("w", Region.W_FC_BIAS, DType.F32, [(1, 1, 1, 1)] * 5)
    with pytest.raises(ValueError, match=r"N, H, W, C, not \[1, 2\]"):
        TensorOp("w", Region.W_FC_BIAS, DType.F32, [(1, 2)] * 6)
    with pytest.raises(ValueError, match="does not fit into 64 bits"):
        TensorOp("w", Region.W_FC_BIAS, DType.F32, [(1, 1, 1, 1)] * 6, slot=1 << 63)


def test_xdsl_verifier_gives_all_problems():
    op = TensorOp("w", Region.W_FC_BIAS, DType.F32, [(1, 1, 1, 1)] * 6, Initial("zeros", fan=3), offset=7)
    with pytest.raises(VerifyException, match=r"takes no fan .*; .*no slot; .*no multiple"):
        op.verify_()


def test_foreign_type_still_prints():
    op = TensorOp("w", Region.W_FC_BIAS, DType.F32, [(1, 1, 1, 1)] * 6)
    op.properties["dtype"] = f80
    assert "W_FC_BIAS f80" in text_of(ModuleOp([op]))


def test_attributes_are_shared():
    a = TensorOp("a", Region.W_FC_BIAS, DType.F32, [(1, 1, 1, 9)] * 6, layer="x")
    b = TensorOp("b", Region.W_FC_BIAS, DType.F32, [(1, 1, 1, 9)] * 6, layer="x")
    for key in ("region", "dtype", "shapes", "layer"):
        assert a.properties[key] is b.properties[key]
    assert integer(7) is integer(7)
    assert symbol("x") is symbol("x")


@pytest.mark.parametrize("value", [0.1, 1e-5, 1e300, -2.0, 5e-324, 1.5e16, 123456789.125])
def test_float_text_reads_back(value: float):
    text = float_text(value)
    assert float(text) == value
    assert "." in text


def test_hint():
    assert hint("W_FC_WEIHGT", Region.__members__) == "; did you mean W_FC_WEIGHT?"
    assert hint("zzz", ["a", "b"]) == ""
