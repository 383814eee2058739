"""Frozen dataclasses to JSON values and back, strictly.

Unknown or missing keys, wrong types and unknown variants of a union are errors that say where in the document
they stand. A field that is `LATER` than its format may be missing, and is written only where it says something.
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


LATER: Mapping[str, bool] = {"trc.later": True}
"""Metadata of a dataclass's field that its format got after documents had been written without it.

A document that lacks the field means its default, and the default is not written: what says nothing new keeps its
bytes, and its hash.
"""


def _is_later(field: dataclasses.Field[typing.Any]) -> bool:
    return LATER.keys() <= field.metadata.keys()


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
            held = getattr(value, field.name)
            if not _is_later(field) or held != field.default:
                body[field.name] = to_json(held)
        return body
    if isinstance(value, Mapping):
        mapping = typing.cast(Mapping[str, object], value)
        return {str(k): to_json(v) for k, v in mapping.items()}
    if isinstance(value, Sequence):
        return [to_json(v) for v in typing.cast(Sequence[object], value)]
    raise TypeError(f"cannot write a {type(value).__name__} as JSON")


def from_json(kind: type[T], value: object, where: str = "$") -> T:
    """Read a value of type `kind`; CodecError says what does not fit and where."""
    try:
        return typing.cast(T, _reader(kind)(value))
    except _Misfit as err:
        raise CodecError(f"{where}{err.path}: {err.text}") from None


class _Misfit(Exception):
    """What does not fit; `path` grows while it passes through the readers around."""

    def __init__(self, text: str, path: str = "") -> None:
        super().__init__(text)
        self.text, self.path = text, path

    def within(self, step: str) -> _Misfit:
        """The same as seen from outside a step of the path."""
        return _Misfit(self.text, step + self.path)


_Reader = typing.Callable[[object], object]


def _expected(wanted: str, value: object) -> _Misfit:
    shown = repr(value)
    return _Misfit(f"expected {wanted}, found {shown if len(shown) < 60 else shown[:57] + '...'}")


def _name(kind: typing.Any) -> str:
    return str(getattr(kind, "__name__", kind))


@cache
def _reader(kind: typing.Any) -> _Reader:
    """What reads a type: looked up once, since a plan has a hundred thousand values."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _union_reader(args)
    if origin is tuple:
        return _list_reader(args[0]) if len(args) == 2 and args[1] is Ellipsis else _tuple_reader(args)
    if origin in (dict, Mapping):
        return _mapping_reader(args[1])
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enum_reader(kind)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _dataclass_reader(kind)
    if isinstance(kind, type) and issubclass(kind, tuple):  # a named tuple of integers
        make = typing.cast(typing.Callable[..., object], kind)
        items = _tuple_reader((int,) * len(typing.cast(typing.Any, kind)._fields))
        return lambda value: make(*typing.cast(tuple[object, ...], items(value)))
    return _scalar_reader(kind)


def _scalar_reader(kind: typing.Any) -> _Reader:
    name = "null" if kind is types.NoneType else _name(kind)

    def read(value: object) -> object:
        if type(value) is kind:
            return value
        if kind is float and type(value) is int:
            return float(value)
        raise _expected(name, value)

    return read


def _enum_reader(kind: type[Enum]) -> _Reader:
    members = {m.value if isinstance(m.value, str) else m.name: m for m in kind}

    def read(value: object) -> object:
        if isinstance(value, str) and (member := members.get(value)) is not None:
            return member
        raise _expected(f"a {kind.__name__}", value)

    return read


def _as_list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise _expected("a list", value)
    return typing.cast(list[object], value)


def _list_reader(item: typing.Any) -> _Reader:
    read_item = _reader(item)

    def read(value: object) -> object:
        items = _as_list(value)
        found: list[object] = []
        try:
            for one in items:
                found.append(read_item(one))
        except _Misfit as err:
            raise err.within(f"[{len(found)}]") from None
        return tuple(found)

    return read


def _tuple_reader(args: tuple[typing.Any, ...]) -> _Reader:
    readers = [_reader(a) for a in args]

    def read(value: object) -> object:
        items = _as_list(value)
        if len(items) != len(readers):
            raise _expected(f"a list of {len(readers)}", items)
        found: list[object] = []
        try:
            for reader, one in zip(readers, items, strict=True):
                found.append(reader(one))
        except _Misfit as err:
            raise err.within(f"[{len(found)}]") from None
        return tuple(found)

    return read


def _mapping_reader(item: typing.Any) -> _Reader:
    read_item = _reader(item)

    def read(value: object) -> object:
        if not isinstance(value, dict):
            raise _expected("an object", value)
        found: dict[str, object] = {}
        for key, one in typing.cast(dict[str, object], value).items():
            try:
                found[key] = read_item(one)
            except _Misfit as err:
                raise err.within(f".{key}") from None
        return found

    return read


def _union_reader(args: tuple[typing.Any, ...]) -> _Reader:
    classes = {k.__name__: k for k in args if isinstance(k, type) and dataclasses.is_dataclass(k)}
    names = ", ".join(map(_name, args))

    def read(value: object) -> object:
        if isinstance(value, dict):
            name = typing.cast(dict[str, object], value).get("type")
            kind = classes.get(name) if isinstance(name, str) else None
            if kind is None:
                raise _expected(f"one of {names}", name).within(".type")
            return _reader(kind)(typing.cast(object, value))
        for other in args:
            try:
                return _reader(other)(value)
            except _Misfit:
                continue
        raise _expected(" or ".join(map(_name, args)), value)

    return read


def _dataclass_reader(kind: type) -> _Reader:
    hints = typing.get_type_hints(kind)
    readers = {f.name: _reader(hints[f.name]) for f in dataclasses.fields(kind)}
    keys = {"type", *readers}
    optional = {f.name for f in dataclasses.fields(kind) if _is_later(f)}

    def read(value: object) -> object:
        if not isinstance(value, dict):
            raise _expected(f"a {kind.__name__} object", value)
        body = typing.cast(dict[str, object], value)
        if (name := body.get("type")) != kind.__name__:
            raise _expected(f"'{kind.__name__}'", name).within(".type")
        if body.keys() != keys:
            for key in body:
                if key not in keys:
                    raise _Misfit(f"unknown key '{key}' in {kind.__name__}")
            for key in readers:
                if key not in body and key not in optional:
                    raise _Misfit(f"{kind.__name__} lacks '{key}'")
        found: dict[str, object] = {}
        for key, reader in readers.items():
            if key not in body:
                continue
            try:
                found[key] = reader(body[key])
            except _Misfit as err:
                raise err.within(f".{key}") from None
        try:
            return kind(**found)
        except ValueError as err:
            raise _Misfit(str(err)) from None

    return read
