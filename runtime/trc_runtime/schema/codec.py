"""Frozen dataclasses to JSON values and back, strictly.

Unknown or missing keys, wrong types and unknown variants of a union are errors that say where in the document
they stand.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache

T = typing.TypeVar("T")

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


class CodecError(ValueError):
    """A document that does not fit its type; the message begins with the path."""


def to_json(value: object) -> Json:
    """A JSON value for a dataclass, enum, tuple, mapping or scalar.

    Dataclasses become objects with a `type` key, so that unions read back; named tuples become lists.
    """
    if value is None or (isinstance(value, bool | int | float | str) and not isinstance(value, Enum)):
        return value
    if isinstance(value, Enum):
        return value.value if isinstance(value.value, str) else value.name
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        body: dict[str, Json] = {"type": type(value).__name__}
        for field in dataclasses.fields(value):
            body[field.name] = to_json(getattr(value, field.name))
        return body
    if isinstance(value, Mapping):
        mapping = typing.cast(Mapping[str, object], value)
        return {str(k): to_json(v) for k, v in mapping.items()}
    if isinstance(value, Sequence):
        return [to_json(v) for v in typing.cast(Sequence[object], value)]
    raise TypeError(f"cannot write a {type(value).__name__} as JSON")


def from_json(kind: type[T], value: object, where: str = "$") -> T:
    """Read a value of type `kind`; CodecError says what does not fit and where."""
    return typing.cast(T, _read(kind, value, where))


@cache
def _hints(kind: type) -> dict[str, typing.Any]:
    return typing.get_type_hints(kind)


def _fail(where: str, wanted: str, value: object) -> typing.NoReturn:
    shown = repr(value)
    raise CodecError(f"{where}: expected {wanted}, found {shown if len(shown) < 60 else shown[:57] + '...'}")


def _read(kind: typing.Any, value: object, where: str) -> object:
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _read_union(typing.get_args(kind), value, where)
    if origin is tuple:
        return _read_tuple(typing.get_args(kind), value, where)
    if origin in (dict, Mapping):
        if not isinstance(value, dict):
            _fail(where, "an object", value)
        item = typing.get_args(kind)[1]
        entries = typing.cast(dict[str, object], value)
        return {k: _read(item, v, f"{where}.{k}") for k, v in entries.items()}
    if kind is types.NoneType:
        return None if value is None else _fail(where, "null", value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _read_enum(kind, value, where)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _read_dataclass(kind, value, where)
    if isinstance(kind, type) and issubclass(kind, tuple):  # a named tuple of integers
        width = len(typing.cast(typing.Any, kind)._fields)
        items = _read_tuple((int,) * width, value, where)
        return typing.cast(typing.Callable[..., object], kind)(*items)
    return _read_scalar(kind, value, where)


def _read_scalar(kind: typing.Any, value: object, where: str) -> object:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not kind:
        _fail(where, str(getattr(kind, "__name__", kind)), value)
    return value


def _read_enum(kind: type[Enum], value: object, where: str) -> Enum:
    for member in kind:
        if value == (member.value if isinstance(member.value, str) else member.name):
            return member
    _fail(where, f"a {kind.__name__}", value)


def _read_tuple(args: tuple[typing.Any, ...], value: object, where: str) -> tuple[object, ...]:
    if not isinstance(value, list):
        _fail(where, "a list", value)
    items = typing.cast(list[object], value)
    if len(args) == 2 and args[1] is Ellipsis:
        return tuple(_read(args[0], v, f"{where}[{n}]") for n, v in enumerate(items))
    if len(items) != len(args):
        _fail(where, f"a list of {len(args)}", items)
    return tuple(_read(a, v, f"{where}[{n}]") for n, (a, v) in enumerate(zip(args, items, strict=True)))


def _read_union(args: tuple[typing.Any, ...], value: object, where: str) -> object:
    if isinstance(value, dict):
        name = typing.cast(dict[str, object], value).get("type")
        for kind in args:
            if isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind.__name__ == name:
                return _read_dataclass(kind, typing.cast(object, value), where)
        names = ", ".join(str(getattr(k, "__name__", k)) for k in args)
        _fail(f"{where}.type", f"one of {names}", name)
    for kind in args:
        try:
            return _read(kind, value, where)
        except CodecError:
            continue
    _fail(where, " or ".join(str(getattr(k, "__name__", k)) for k in args), value)


def _read_dataclass(kind: type, value: object, where: str) -> object:
    if not isinstance(value, dict):
        _fail(where, f"a {kind.__name__} object", value)
    body = dict(typing.cast(dict[str, object], value))
    if (name := body.pop("type", None)) != kind.__name__:
        _fail(f"{where}.type", f"'{kind.__name__}'", name)
    hints = _hints(kind)
    names = [f.name for f in dataclasses.fields(kind)]
    for key in body:
        if key not in names:
            raise CodecError(f"{where}: unknown key '{key}' in {kind.__name__}")
    for key in names:
        if key not in body:
            raise CodecError(f"{where}: {kind.__name__} lacks '{key}'")
    try:
        return kind(**{n: _read(hints[n], body[n], f"{where}.{n}") for n in names})
    except CodecError:
        raise
    except ValueError as err:
        raise CodecError(f"{where}: {err}") from None
