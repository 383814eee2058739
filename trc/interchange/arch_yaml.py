"""The ArchPlan as YAML: every layer with its inputs, parameters and result, in both directions without loss.

    version: trc-arch-1
    model: mlp
    input: [28, 28, 1]
    layers:
    - {name: fc1, op: fc, inputs: [<input>], params: {out_features: 1024, bias: true}, shape: [1, 1, 1024]}
    output: fc1

An unknown size is null. A layer may have `parts` (the layers that a merged one stands for), `first: true` and `forms`
(chosen kernel forms by the names of the parts). Unknown and repeated keys, anchors and tags are refused. Places in
source files are not kept.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, cast

import yaml
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.utils.exceptions import VerifyException

from trc.diagnostics import CompileError
from trc.dialects.arch import Arch, LayerOp, ModelOp, OutputOp, Shape, shape_of, tensor_of
from trc.dialects.arch.base import (
    UNIT,
    BoolField,
    Field,
    FloatField,
    IntField,
    Number,
    UnitField,
    bool_of,
    float_of,
    int_of,
)
from trc.dialects.attributes import string
from trc.dialects.plugins import find_op
from trc.dialects.verifier import verify
from trc.interchange.parameters import model_of

VERSION = "trc-arch-1"
INPUT = "<input>"
"""How the network's input is called among the `inputs` of a layer; no layer can have that name."""

MAX_TEXT = 16 * 1024 * 1024
"""The longest text that is read, in characters: some ten times what a network of 10,000 layers takes."""

_PREFIX = "arch."
_OPS: dict[str, type[LayerOp]] = {
    op.name.removeprefix(_PREFIX): op for op in Arch.operations if issubclass(op, LayerOp)
}
_LAYER_KEYS = ("name", "op", "inputs", "params", "parts", "first", "forms", "shape")


class _Loader(yaml.SafeLoader):
    """YAML of plain mappings, lists, words and numbers: what has several meanings to several readers is refused."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = cast(Any, self).peek_event()
        if isinstance(event, yaml.AliasEvent):
            raise yaml.MarkedYAMLError(None, None, "aliases are not read", event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                raise yaml.MarkedYAMLError(None, None, "a key must be a plain word", key.start_mark)
            if str(key.value) in seen:
                raise yaml.MarkedYAMLError(None, None, f"the key '{key.value}' is given twice", key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def to_yaml(module: ModuleOp) -> str:
    """The module's only `arch.model` as YAML; other operations of the module are left aside.

    Raises CompileError before `arch-expand-tree`, for a module without a model, and for what YAML has no place for.
    """
    model = model_of(module)
    _refuse_attributes(model)
    block = model.body.block
    names: dict[SSAValue, str] = {block.args[0]: INPUT}
    taken: set[str] = set()
    layers: list[dict[str, object]] = []
    output = ""
    for op in block.ops:
        if isinstance(op, OutputOp):
            output = names[op.operands[0]]
        elif isinstance(op, LayerOp):
            if op.layer is None:
                raise CompileError.at(op, "a layer without a name has no YAML form: run arch-expand-tree first")
            if op.layer_name in taken:
                raise CompileError.at(op, "the name is given twice", op.layer_name)
            taken.add(op.layer_name)
            layers.append(_layer_document(op, names))
            names[op.result] = op.layer_name
        else:
            raise CompileError.at(op, f"{op.name} has no YAML form: run arch-expand-tree first")
        _refuse_attributes(op)
    document = {
        "version": VERSION,
        "model": model.sym_name.data,
        "input": list(shape_of(block.args[0])[1:]),
        "layers": layers,
        "output": output,
    }
    return yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=120, allow_unicode=True)


def _refuse_attributes(op: Operation) -> None:
    if op.attributes:
        raise CompileError.at(op, f"the attribute '{next(iter(op.attributes))}' of {op.name} has no YAML form")


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
    if op.forms is not None:
        document["forms"] = [form.data for form in op.forms]
    document["shape"] = list(shape_of(op.result)[1:])
    return document


def _value(field: Field, attr: Attribute) -> Number | str:
    match field:
        case UnitField():
            return True
        case IntField():
            return int_of(attr)
        case FloatField():
            return float_of(attr)
        case BoolField():
            return bool_of(attr)
        case _:
            return field.text(attr)


def from_yaml(text: str) -> ModuleOp:
    """The module that `to_yaml` wrote; CompileError with the layer and the key for anything that does not fit."""
    if len(text) > MAX_TEXT:
        raise CompileError(f"the text has {len(text):,} characters; at most {MAX_TEXT:,} are read")
    try:
        document: object = yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as err:  # ValueError: a number of thousands of digits
        raise CompileError(f"not YAML: {err}") from None
    root = _mapping(document, "the document", ("version", "model", "input", "layers", "output"))
    if root.get("version") != VERSION:
        raise CompileError(f"version is {_shown(root.get('version'))}, this trc reads {VERSION!r}")
    name = _text(root.get("model"), "model")
    if not name:
        raise CompileError("model must be a name")
    block = Block(arg_types=[tensor_of(_shape(root.get("input"), "input"))])
    block.args[0].name_hint = "input"
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
    op_class = _op_class(kind) if isinstance(kind, str) else None
    if op_class is None:
        raise CompileError(f"{where}: unknown op {_shown(kind)}{_hint(kind, _OPS)}")
    operands = [_lookup(values, v, f"{where}: inputs") for v in _list(document.get("inputs"), f"{where}: inputs")]
    wanted = len(op_class.get_irdl_definition().operands)
    if len(operands) != wanted:
        raise CompileError(f"{where}: {kind} takes {wanted} inputs, not {len(operands)}")
    properties = _properties(document.get("params", {}), where, op_class)
    properties["layer"] = string(name)
    if "parts" in document:
        properties["parts"] = _texts(document["parts"], f"{where}: parts")
    if "first" in document:
        if document["first"] is not True:
            raise CompileError(f"{where}: first is true or left out, not {_shown(document['first'])}")
        properties["first"] = UNIT
    if "forms" in document:
        properties["forms"] = _texts(document["forms"], f"{where}: forms")
    result = tensor_of(_shape(document.get("shape"), f"{where}: shape"))
    return op_class.create(operands=operands, result_types=[result], properties=properties)


def _op_class(kind: str) -> type[LayerOp] | None:
    """The operation of that name, if need be from another package."""
    return _OPS.get(kind) or find_op(_PREFIX + kind)


def _properties(params: object, where: str, op_class: type[LayerOp]) -> dict[str, Attribute]:
    fields = {f.name: f for f in op_class.FIELDS}
    given = _mapping(params, f"{where}: params", tuple(fields))
    for field in op_class.FIELDS:
        if field.name not in given and field.default is None and not field.optional:
            raise CompileError(f"{where}: params lack '{field.name}'")
        if field.name in given and not _is_value(field, given[field.name]):
            raise CompileError(f"{where}: params: {field.name} is {_shown(given[field.name])}, {_wanted(field)}")
    try:
        return op_class.fields_from(cast(Mapping[str, Number], given))
    except (TypeError, ValueError, VerifyException) as err:
        raise CompileError(f"{where}: params: {err}") from None


def _is_value(field: Field, value: object) -> bool:
    """Whether a value has the type that a field wants; true is no number here, nor null a value."""
    match field:
        case UnitField():
            return value is True
        case BoolField():
            return isinstance(value, bool)
        case IntField():
            return type(value) is int
        case FloatField():
            return type(value) in (int, float)
        case _:
            return isinstance(value, str)


def _wanted(field: Field) -> str:
    match field:
        case UnitField():
            return "but it is true or left out"
        case BoolField():
            return "not true or false"
        case IntField():
            return "not a whole number"
        case FloatField():
            return "not a number"
        case _:
            return "not a word"


def _shown(value: object) -> str:
    """A value as messages show it: short."""
    return reprlib.repr(value)


def _texts(value: object, where: str) -> ArrayAttr[StringAttr]:
    return ArrayAttr(string(_text(item, where)) for item in _list(value, where))


def _hint(word: object, choices: Mapping[str, object] | Sequence[str]) -> str:
    close = get_close_matches(str(word)[:80], list(choices), n=1) if isinstance(word, str) else []
    return f"; did you mean '{close[0]}'?" if close else ""


def _mapping(value: object, where: str, keys: Sequence[str]) -> dict[str, object]:
    if not isinstance(value, dict):
        raise CompileError(f"{where} must be a mapping, not {_shown(value)}")
    found = cast(dict[object, object], value)
    for key in found:
        if key not in keys:
            raise CompileError(f"{where}: unknown key {_shown(key)}{_hint(key, keys)}")
    return cast(dict[str, object], found)


def _list(value: object, where: str) -> Iterator[object]:
    if not isinstance(value, list):
        raise CompileError(f"{where} must be a list, not {_shown(value)}")
    return iter(cast(list[object], value))


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise CompileError(f"{where} must be a name, not {_shown(value)}")
    return value


def _shape(value: object, where: str) -> Shape:
    sizes = list(_list(value, where))
    if len(sizes) != 3 or not all(s is None or (type(s) is int and s > 0) for s in sizes):
        raise CompileError(f"{where} must be [height, width, channels], not {_shown(sizes)}")
    h, w, c = cast(list[int | None], sizes)
    return None, h, w, c


def _lookup(values: Mapping[str, SSAValue], name: object, where: str) -> SSAValue:
    value = values.get(name) if isinstance(name, str) else None
    if value is None:
        raise CompileError(f"{where}: there is no layer {_shown(name)} above{_hint(name, list(values))}")
    return value
