"""The ArchPlan as YAML: every layer with its inputs, parameters and result, in both directions without loss.

    version: trc-arch-1
    model: mlp
    input: [28, 28, 1]
    layers:
    - {name: fc1, op: fc, inputs: [flatten1], params: {out_features: 1024, bias: true}, shape: [1, 1, 1024]}
    output: fc1

An unknown size is null. Unknown keys are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import cast

import yaml
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.utils.exceptions import VerifyException

from trc.diagnostics import CompileError
from trc.dialects.arch import Arch, LayerOp, ModelOp, OutputOp, Shape, shape_of, tensor_of
from trc.dialects.arch.base import UNIT, EnumField, Field, FloatField, Number, UnitField, bool_of, float_of, int_of
from trc.dialects.attributes import string
from trc.dialects.verifier import verify

VERSION = "trc-arch-1"
INPUT = "input"
"""How the network's input is called among the `inputs` of a layer."""

_PREFIX = "arch."
_OPS: dict[str, type[LayerOp]] = {
    op.name.removeprefix(_PREFIX): op for op in Arch.operations if issubclass(op, LayerOp)
}
_LAYER_KEYS = ("name", "op", "inputs", "params", "parts", "first", "shape")


def to_yaml(module: ModuleOp) -> str:
    """The module's `arch.model` as YAML. Raises CompileError before `arch-expand-tree` and for a module without one."""
    model = _model(module)
    block = model.body.block
    names: dict[SSAValue, str] = {block.args[0]: INPUT}
    layers: list[dict[str, object]] = []
    output = ""
    for op in block.ops:
        if isinstance(op, OutputOp):
            output = names[op.operands[0]]
        elif isinstance(op, LayerOp):
            layers.append(_layer_document(op, names))
            names[op.result] = op.layer_name
        else:
            raise CompileError.at(op, f"{op.name} has no YAML form: run arch-expand-tree first")
    document = {
        "version": VERSION,
        "model": model.sym_name.data,
        "input": list(shape_of(block.args[0])[1:]),
        "layers": layers,
        "output": output,
    }
    return yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=120)


def _model(module: ModuleOp) -> ModelOp:
    for op in module.ops:
        if isinstance(op, ModelOp):
            return op
    raise CompileError("the module has no arch.model")


def _layer_document(op: LayerOp, names: Mapping[SSAValue, str]) -> dict[str, object]:
    document: dict[str, object] = {
        "name": op.layer_name,
        "op": op.name.removeprefix(_PREFIX),
        "inputs": [names[v] for v in op.operands],
    }
    params = {f.name: _value(f, op.properties[f.name]) for f in op.FIELDS if f.name in op.properties}
    if params:
        document["params"] = params
    if op.parts is not None:
        document["parts"] = list(op.leaf_names)
    if op.first is not None:
        document["first"] = True
    document["shape"] = list(shape_of(op.result)[1:])
    return document


def _value(field: Field, attr: Attribute) -> Number | str:
    if isinstance(field, UnitField):
        return True
    if isinstance(field, EnumField):
        return field.text(attr)
    if isinstance(field, FloatField):
        return float_of(attr)
    return bool_of(attr) if field.text(attr) in ("true", "false") else int_of(attr)


def from_yaml(text: str) -> ModuleOp:
    """The module that `to_yaml` wrote; CompileError with the layer and the key for anything that does not fit."""
    try:
        document: object = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as err:
        raise CompileError(f"not YAML: {err}") from None
    root = _mapping(document, "the document", ("version", "model", "input", "layers", "output"))
    if root.get("version") != VERSION:
        raise CompileError(f"version is {root.get('version')!r}, this trc reads {VERSION!r}")
    name = _text(root.get("model"), "model")
    block = Block(arg_types=[tensor_of(_shape(root.get("input"), "input"))])
    block.args[0].name_hint = INPUT
    values: dict[str, SSAValue] = {INPUT: block.args[0]}
    for number, item in enumerate(_list(root.get("layers"), "layers"), 1):
        op = _layer(item, f"layer {number}", values)
        if op.layer_name in values:
            raise CompileError(f"layer {number}: the name '{op.layer_name}' is given twice")
        block.add_op(op)
        values[op.layer_name] = op.result
    block.add_op(OutputOp(_lookup(values, root.get("output"), "output")))
    module = ModuleOp([ModelOp(name, Region(block))])
    verify(module)
    return module


def _layer(item: object, where: str, values: Mapping[str, SSAValue]) -> LayerOp:
    document = _mapping(item, where, _LAYER_KEYS)
    name = _text(document.get("name"), f"{where}: name")
    where = f"layer '{name}'"
    kind = document.get("op")
    op_class = _OPS.get(kind) if isinstance(kind, str) else None
    if op_class is None:
        raise CompileError(f"{where}: unknown op {kind!r}{_hint(kind, _OPS)}")
    operands = [_lookup(values, v, f"{where}: inputs") for v in _list(document.get("inputs"), f"{where}: inputs")]
    wanted = len(op_class.get_irdl_definition().operands)
    if len(operands) != wanted:
        raise CompileError(f"{where}: {kind} takes {wanted} inputs, not {len(operands)}")
    properties = _properties(document.get("params", {}), where, op_class)
    properties["layer"] = string(name)
    if "parts" in document:
        parts = _list(document["parts"], f"{where}: parts")
        properties["parts"] = ArrayAttr[StringAttr](string(_text(p, f"{where}: parts")) for p in parts)
    if document.get("first", False) is True:
        properties["first"] = UNIT
    result = tensor_of(_shape(document.get("shape"), f"{where}: shape"))
    return op_class.create(operands=operands, result_types=[result], properties=properties)


def _properties(params: object, where: str, op_class: type[LayerOp]) -> dict[str, Attribute]:
    fields = {f.name: f for f in op_class.FIELDS}
    given = _mapping(params, f"{where}: params", tuple(fields))
    for field in op_class.FIELDS:
        if field.name not in given and field.default is None and not field.optional:
            raise CompileError(f"{where}: params lack '{field.name}'")
    try:
        return op_class.fields_from(cast(Mapping[str, Number], given))
    except (TypeError, ValueError, VerifyException) as err:
        raise CompileError(f"{where}: params: {err}") from None


def _hint(word: object, choices: Mapping[str, object] | Sequence[str]) -> str:
    close = get_close_matches(str(word), list(choices), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


def _mapping(value: object, where: str, keys: Sequence[str]) -> dict[str, object]:
    if not isinstance(value, dict):
        raise CompileError(f"{where} must be a mapping, not {value!r}")
    found = cast(dict[object, object], value)
    for key in found:
        if key not in keys:
            raise CompileError(f"{where}: unknown key {key!r}{_hint(key, keys)}")
    return cast(dict[str, object], found)


def _list(value: object, where: str) -> Iterator[object]:
    if not isinstance(value, list):
        raise CompileError(f"{where} must be a list, not {value!r}")
    return iter(cast(list[object], value))


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise CompileError(f"{where} must be a name, not {value!r}")
    return value


def _shape(value: object, where: str) -> Shape:
    sizes = list(_list(value, where))
    if len(sizes) != 3 or not all(s is None or (type(s) is int and s > 0) for s in sizes):
        raise CompileError(f"{where} must be [height, width, channels], not {sizes!r}")
    h, w, c = cast(list[int | None], sizes)
    return None, h, w, c


def _lookup(values: Mapping[str, SSAValue], name: object, where: str) -> SSAValue:
    value = values.get(name) if isinstance(name, str) else None
    if value is None:
        raise CompileError(f"{where}: there is no layer {name!r} above{_hint(name, list(values))}")
    return value
