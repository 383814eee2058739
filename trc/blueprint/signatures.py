"""The table of all factories, and `make`, through which every layer comes into being.

Names, defaults and meaning are those of `spec/compiler-facts.md`, section 1.2. trc adds: `bias` on convolutions,
`slope` and `alpha`, `act` on `cbr`, defaults where the original has none, and ranges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from trc.blueprint.layer import (
    MAX_CHANNELS,
    MAX_DEPTH,
    MAX_LAYERS,
    MAX_SIDE,
    Layer,
    Value,
    caller_place,
    is_layer_name,
)
from trc.blueprint.parameters import (
    Activation,
    ArgumentProblem,
    BlockStyle,
    Child,
    Flag,
    OneOf,
    Parameter,
    Real,
    Signature,
    Style,
    Whole,
    count,
    describe,
    nearest,
)
from trc.diagnostics import Location

_CHANNELS = Whole(1, MAX_CHANNELS)
_WINDOW = Whole(1, MAX_SIDE)
_PADDING = Whole(0, MAX_SIDE)
_MOMENTUM = Real("from 0 to 1", 0.0, 1.0)
_EPSILON = Real("greater than 0 and at most 1", 0.0, 1.0, open_low=True)
_RATE = Real("at least 0 and less than 1", 0.0, 1.0, open_high=True)
# Backward tells the branches of a leaky_relu apart by the sign of its result.
_SLOPE = Real("finite and at least 0", 0.0, float("inf"))
_POSITIVE = Real("finite and greater than 0", 0.0, float("inf"), open_low=True)

_BN = (Parameter("momentum", _MOMENTUM, 0.1, keyword=True), Parameter("eps", _EPSILON, 1e-5, keyword=True))
_ACT = Parameter("act", Activation(), "relu", keyword=True)
_CONV = (
    Parameter("k", _WINDOW),
    Parameter("s", _WINDOW, 1),
    Parameter("p", _PADDING, 0),
)
_CONV_BIAS = Parameter("bias", Flag(), False, keyword=True)
_POOL = (Parameter("k", _WINDOW), Parameter("s", _WINDOW), Parameter("p", _PADDING, 0))
_FC = (Parameter("out_features", _CHANNELS), Parameter("bias", Flag(), True))
_CBR = (Parameter("out_ch", _CHANNELS), *_CONV, *_BN, _ACT)


def _check_groups(values: Mapping[str, Any]) -> None:
    if values["out_ch"] % values["groups"]:
        raise ArgumentProblem(
            f"group_conv: argument 'out_ch' must be a multiple of groups={values['groups']}, not {values['out_ch']}",
            "out_ch",
        )


def _check_window(kind: str, k: str = "k", p: str = "p") -> Any:
    def check(values: Mapping[str, Any]) -> None:
        # A wider padding would make windows that see no pixel at all.
        if values[p] >= values[k]:
            raise ArgumentProblem(
                f"{kind}: argument '{p}' must be less than {k}={values[k]}, not {values[p]}; "
                "a window must see at least one pixel",
                p,
            )

    return check


def _check_flatten(values: Mapping[str, Any]) -> None:
    if values["start_dim"] != 1:
        raise ArgumentProblem(
            "flatten: argument 'start_dim' can only be 1, because height, width and channels are always flattened "
            f"together; it is {values['start_dim']}",
            "start_dim",
        )


def _arrange_block(positional: Sequence[object], keywords: Mapping[str, object]) -> Mapping[str, object]:
    """Sort out `block(mid, out, style)` and `block(out, style)`."""
    if len(positional) > 3:
        raise ArgumentProblem(
            f"block: takes at most 3 arguments, not {len(positional)}; write block(mid, out, style) or "
            "block(out, style)",
            None,
            TypeError,
        )
    last_is_style = bool(positional) and isinstance(positional[-1], str)
    if last_is_style:
        names = ["mid", "out", "style"][3 - len(positional) :]
    elif len(positional) == 1 and "out" not in keywords:
        names = ["out"]
    else:
        names = ["mid", "out", "style"][: len(positional)]
    given = dict(zip(names, positional, strict=False))
    for name, value in keywords.items():
        if name in given:
            raise ArgumentProblem(f"block: argument '{name}' is given twice", name, TypeError)
        given[name] = value
    return given


def _check_block(values: Mapping[str, Any]) -> None:
    style = str(values["style"])
    if style.startswith("RESNET_1_3_1"):
        if values["mid"] is None:
            raise ArgumentProblem(
                f"block: style {style} needs the channels of the middle too; write block(mid, out, {style})", "style"
            )
    elif values["mid"] is not None:
        raise ArgumentProblem(f"block: style {style} has no argument 'mid'; write block(out, {style})", "style")


def _finish_mbconv(values: Mapping[str, Any]) -> tuple[str, tuple[Value, ...]]:
    style = f"MB_E{values['expand']}_K3{'_DS' if values['stride'] == 2 else ''}"
    return "block", (None, values["out"], str(BlockStyle(style)))


def _finish_as(kind: str) -> Any:
    def finish(values: Mapping[str, Any]) -> tuple[str, tuple[Value, ...]]:
        return kind, tuple(values.values())

    return finish


SIGNATURES: dict[str, Signature] = {
    s.kind: s
    for s in (
        Signature("conv", (Parameter("out_ch", _CHANNELS), *_CONV, _CONV_BIAS)),
        Signature("conv_dw", (*_CONV, _CONV_BIAS)),
        Signature(
            "group_conv",
            (Parameter("out_ch", _CHANNELS), Parameter("groups", _CHANNELS), *_CONV, _CONV_BIAS),
            check=_check_groups,
        ),
        Signature("bn", _BN),
        Signature("relu"),
        Signature("tanh_act"),
        Signature("silu"),
        Signature("relu6"),
        Signature("leaky_relu", (Parameter("slope", _SLOPE, 0.01),)),
        Signature("hardswish"),
        Signature("elu", (Parameter("alpha", _POSITIVE, 1.0),)),
        Signature("sigmoid"),
        Signature("dropout", (Parameter("p", _RATE),)),
        Signature("flatten", (Parameter("start_dim", Whole(0, 3), 1),), check=_check_flatten),
        Signature("channel_padding"),
        Signature("maxpool", _POOL, check=_check_window("maxpool")),
        Signature("avgpool", _POOL, check=_check_window("avgpool")),
        Signature("gap"),
        Signature("fc", _FC),
        Signature("identity"),
        Signature("cbr", _CBR, size=3),
        Signature("conv_bn_relu", _CBR, size=3, finish=_finish_as("cbr")),
        Signature(
            "cbrp",
            (
                Parameter("out_ch", _CHANNELS),
                Parameter("ck", _WINDOW),
                Parameter("cs", _WINDOW),
                Parameter("cp", _PADDING),
                Parameter("pk", _WINDOW),
                Parameter("ps", _WINDOW),
                Parameter("pp", _PADDING),
                *_BN,
                _ACT,
            ),
            size=4,
            check=_check_window("cbrp", "pk", "pp"),
        ),
        Signature("gap_fc", _FC, size=2),
        Signature(
            "block",
            (Parameter("mid", _CHANNELS, None), Parameter("out", _CHANNELS), Parameter("style", Style())),
            size=13,
            check=_check_block,
            arrange=_arrange_block,
        ),
        Signature(
            "mbconv",
            (
                Parameter("expand", OneOf((1, 6))),
                Parameter("out", _CHANNELS),
                Parameter("stride", OneOf((1, 2))),
            ),
            size=13,
            finish=_finish_mbconv,
        ),
        Signature("seq", size=0, variadic=True),
        Signature("add2", (Parameter("shortcut", Child()), Parameter("stem", Child()))),
        Signature("repeat", (Parameter("body", Child()), Parameter("times", Whole(1, MAX_LAYERS))), size=0),
        Signature(
            "input",
            (
                Parameter("h", Whole(1, MAX_SIDE)),
                Parameter("w", Whole(1, MAX_SIDE)),
                Parameter("c", _CHANNELS),
            ),
            size=0,
        ),
    )
}
"""Every factory by name. `trc.blueprint.register` adds to it."""


def find_signature(kind: str) -> Signature | None:
    """The factory of that name, if need be from another package.

    CompileError where there is none and a package is broken that may have it.
    """
    if kind not in SIGNATURES:
        from trc.dialects.plugins import load_unless

        load_unless(lambda: kind in SIGNATURES)
    return SIGNATURES.get(kind)


def make(
    kind: str,
    positional: Sequence[object] = (),
    keywords: Mapping[str, object] | None = None,
    name: object = None,
    source: Location | None = None,
) -> Layer:
    """A layer made of checked arguments.

    Raises:
        ArgumentProblem: an argument cannot be used; says which and why.
    """
    signature = find_signature(kind)
    if signature is None:
        raise ArgumentProblem(f"there is no layer called '{kind}'{nearest(kind, list(SIGNATURES))}")
    if name is not None and not (isinstance(name, str) and is_layer_name(name)):
        raise ArgumentProblem(
            f"{kind}: argument 'name' must be letters, digits and '_' in parts joined by dots (at most 200 characters, "
            f'no digit first), as in "layer1.conv", not {describe(name)}',
            "name",
            ValueError if isinstance(name, str) else TypeError,
        )
    if kind == "input" and name is not None:
        raise ArgumentProblem("input: has no argument 'name'; it is not a layer", "name", TypeError)
    values: dict[str, Any] = {}
    if signature.variadic:
        children = _members(kind, positional, keywords or {})
    else:
        values = signature.values(signature.assign(positional, keywords or {}))
        children = tuple(value for value in values.values() if isinstance(value, Layer))
    if signature.finish is not None:
        node_kind, args = signature.finish(values)
    else:
        node_kind, args = kind, tuple(cast(Value, v) for v in values.values() if not isinstance(v, Layer))
    size, depth = signature.size, 1
    if children:
        size += sum(child.size for child in children)
        depth += max(child.depth for child in children)
        if kind == "repeat":
            size *= cast(int, values["times"])
        _check_limits(kind, size, depth)
    return Layer(node_kind, args, children, name, source or caller_place(), size, depth)


def _check_limits(kind: str, size: int, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ArgumentProblem(f"{kind}: layers nest more than {MAX_DEPTH} deep; write the inner ones in sequence")
    if size > MAX_LAYERS:
        raise ArgumentProblem(
            f"{kind}: this makes {size:,} layers when written out, and a network may have {MAX_LAYERS:,}; repeat less",
            "times" if kind == "repeat" else None,
        )


def _members(kind: str, given: Sequence[object], keywords: Mapping[str, object]) -> tuple[Layer, ...]:
    """The layers of a seq, which are given one by one or as one list."""
    for keyword in keywords:
        raise ArgumentProblem(
            f"{kind}: no argument is called '{keyword}'; write {kind}(layer, ...) or add name=", keyword, TypeError
        )
    if len(given) == 1 and isinstance(given[0], list | tuple):
        given = cast("Sequence[object]", given[0])
    if not given:
        raise ArgumentProblem(f"{kind}: is empty; give it at least one layer")
    for number, member in enumerate(given, 1):
        where = f"{kind}: {count(len(given), 'layer')} given, and number {number}"
        if not isinstance(member, Layer):
            hint = f"; write {describe(member)}()" if callable(member) else ""
            raise ArgumentProblem(f"{where} is {describe(member)}, not a layer{hint}", f"#{number}", TypeError)
        if member.kind == "input" and number > 1:
            raise ArgumentProblem(f"{where} is input(...), which may only stand first", f"#{number}")
        if member.kind == "seq" and member.children[0].kind == "input":
            raise ArgumentProblem(
                f"{where} is a seq that begins with input(...), which may only stand first in the outermost seq",
                f"#{number}",
            )
    return tuple(cast("Sequence[Layer]", given))
