"""Layers and BluePrints as text that parses back to the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trc.blueprint.layer import Layer, Value

if TYPE_CHECKING:
    from trc.blueprint.network import BluePrint

_WIDTH = 96


def print_value(value: Value) -> str:
    """An argument as the text form spells it. Strings are names of styles and activations, which stand bare."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def _parts(layer: Layer) -> list[str | Layer]:
    """What stands between a call's parentheses, in order: texts, and inner layers yet to be printed."""
    from trc.blueprint.parameters import Child
    from trc.blueprint.signatures import SIGNATURES

    parts: list[str | Layer] = []
    signature = SIGNATURES[layer.kind]
    if signature.variadic:
        parts.extend(layer.children)
    else:
        children, args = iter(layer.children), iter(layer.args)
        pending: list[str] = []
        for parameter in signature.parameters:
            if isinstance(parameter.check, Child):
                parts.append(next(children))
                continue
            value = next(args)
            if value is None:
                continue
            text = print_value(value)
            if parameter.keyword:
                if value != parameter.default:
                    parts.append(f"{parameter.name}={text}")
            elif value == parameter.default:
                # Printed only if a later one by position needs it.
                pending.append(text)
            else:
                parts.extend([*pending, text])
                pending.clear()
    if layer.name is not None:
        parts.append(f'name="{layer.name}"')
    return parts


def _lines(layer: Layer, indent: int, flat: bool) -> list[str]:
    parts = _parts(layer)
    shown = [[part] if isinstance(part, str) else _lines(part, indent + 4, True) for part in parts]
    single = all(len(lines) == 1 for lines in shown)
    if single:
        line = f"{layer.kind}({', '.join(lines[0] for lines in shown)})"
        if not layer.children or (flat and len(line) + indent <= _WIDTH):
            return [line]
    out = [f"{layer.kind}("]
    for number, lines in enumerate(shown):
        comma = "," if number + 1 < len(shown) else ""
        out += [f"    {line}" for line in lines[:-1]] + [f"    {lines[-1]}{comma}"]
    return [*out, ")"]


def print_layer(layer: Layer) -> str:
    """A layer as an expression, on one line where it fits."""
    return "\n".join(_lines(layer, 0, True))


def print_blueprint(blueprint: BluePrint) -> str:
    """A whole network as a .bp text, with a final newline."""
    head = "" if blueprint.input is None else "input({}, {}, {});\n\n".format(*blueprint.input)
    body = "\n".join(_lines(blueprint.root, 0, False))
    return f"{head}BluePrint {blueprint.name} = {body};\n"
