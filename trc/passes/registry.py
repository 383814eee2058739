"""The passes by name, imported when used, and pipelines read from text.

A pipeline is a list of passes with options: `arch-expand-tree{fuse=true},arch-rename-bn`. It may stand in
`builtin.module(...)`, have spaces and line breaks between passes, and hold named pipelines (`arch-plan{amp=true}`),
which are expanded before anything runs.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, get_type_hints

from trc.diagnostics import CompileError

if TYPE_CHECKING:
    from xdsl.passes import ModulePass
    from xdsl.utils.arg_spec import ArgSpec, ParameterListType, ParameterType

_ARCH = (
    "arch-expand-tree",
    "arch-rename-bn",
    "arch-normalize-softmax-ce",
    "arch-normalize-identity",
    "arch-align-amp-channels",
    "arch-deduce-shapes",
    "arch-normalize-flatten",
    "arch-merge-blocks",
    "arch-merge-quadruple",
    "arch-merge-triple",
    "arch-merge-binary-and-mark",
)

_PLAN = (
    "plan-create-compile-specs",
    "plan-select-kernels",
    "plan-derive-all-shapes",
    "plan-compute-max-slot-bytes",
    "plan-create-memory-plans",
    "graph-build-computation",
    "graph-share-or-clone",
    "graph-schedule-steps",
    "plan-pack-transients",
    "graph-build-atlas",
)


def _target(package: str, name: str) -> str:
    """Where a pass lives: its module is named as the pass, its class too."""
    camel = "".join(part.capitalize() for part in name.split("-"))
    return f"trc.passes.{package}.{name.replace('-', '_')}:{camel}Pass"


PASSES: dict[str, str] = {
    **{name: _target("arch", name) for name in _ARCH},
    **{name: _target("plan", name) for name in _PLAN},
}
"""Each pass as `module:Class`, in the order in which the whole pipeline runs them."""


@cache
def load_pass(name: str) -> type[ModulePass]:
    """The class of a pass; CompileError with the nearest name for an unknown one."""
    target = PASSES.get(name)
    if target is None:
        raise CompileError(_unknown("pass", name, [*PASSES, *_pipelines()]))
    module, _, attribute = target.partition(":")
    loaded: type[ModulePass] = getattr(import_module(module), attribute)
    return loaded


def _pipelines() -> Mapping[str, object]:
    from trc.passes.pipelines import NAMED_PIPELINES

    return NAMED_PIPELINES


def summary(name: str) -> str:
    """The first line of a pass's docstring."""
    text = (load_pass(name).__doc__ or "").strip()
    return text.splitlines()[0] if text else ""


def option_texts(name: str) -> list[str]:
    """The options of a pass as `name=default` (`name` alone where one must be given)."""
    texts: list[str] = []
    for field in _fields(load_pass(name)):
        default = field.default
        option = field.name.replace("_", "-")
        if default is dataclasses.MISSING or default is None:
            texts.append(option)
        else:
            shown = "" if default == () else str(default).lower() if isinstance(default, bool) else default
            texts.append(f"{option}={shown}")
    return texts


def parse_pipeline(text: str) -> tuple[ModulePass, ...]:
    """The passes of a pipeline with their options, named pipelines expanded. CompileError for anything wrong."""
    return tuple(_build(spec) for spec in _expanded(_specs(text)))


def pipeline_text(passes: Sequence[ModulePass]) -> str:
    """The spelling that `parse_pipeline` reads back to the same passes."""
    parts = _QUOTED.split(",".join(str(p) for p in passes))
    # xDSL writes large numbers as 1e+16, and reads no +.
    return "".join(part if n % 2 else part.replace("e+", "e") for n, part in enumerate(parts))


_QUOTED = re.compile(r'("[^"]*")')


def _specs(text: str) -> list[ArgSpec]:
    from xdsl.utils import arg_spec
    from xdsl.utils.exceptions import ArgSpecParseError

    line = _normal(text)
    if not line:
        return []
    if line.endswith(","):
        raise CompileError(f"cannot read the pipeline '{text.strip()}': a pass is expected after the last comma")
    try:
        return list(arg_spec.parse_pipeline(line))
    except ArgSpecParseError as err:
        # Its text is a headline, then place, line and marker, then the message.
        detail = [part.strip() for part in str(err).splitlines() if part.strip()]
        marker = "\n".join(f"  {part}" for part in _marked(str(err)))
        raise CompileError(f"cannot read the pipeline: {_plain(detail[-1])}\n{marker}") from None
    except Exception as err:
        raise CompileError(f"cannot read the pipeline '{text.strip()}': {err}") from None


def _refuse_repetitions(options: str) -> None:
    """CompileError for an option that is given twice in one pair of braces: the first would be dropped silently."""
    seen: set[str] = set()
    for key in re.findall(r"(?:^|\s)([\w-]+)=", re.sub(r'"[^"]*"', '""', options)):
        name = key.replace("_", "-")
        if name in seen:
            raise CompileError(f"cannot read the pipeline: option '{name}' is given twice in {{{options}}}")
        seen.add(name)


def _normal(text: str) -> str:
    """The pipeline without `builtin.module(...)` and without white space between passes."""
    text = text.strip()
    if match := re.fullmatch(r"builtin\.module\s*\((.*)\)", text, re.DOTALL):
        text = match[1].strip()
    # Strings and options stay as they are but for line breaks; between passes white space is dropped.
    parts = re.split(r'("[^"]*"|\{[^}]*\})', text)
    return "".join(_inside(part) if n % 2 else "".join(part.split()) for n, part in enumerate(parts))


def _inside(part: str) -> str:
    if not part.startswith("{"):
        return part
    words = re.split(r'("[^"]*")', part[1:-1])
    joined = "".join(word if n % 2 else re.sub(r"\s+", " ", word) for n, word in enumerate(words))
    _refuse_repetitions(joined.strip())
    return "{" + joined.strip() + "}"


def _marked(message: str) -> Iterator[str]:
    """The lines of an ArgSpecParseError that show where it is."""
    lines = [line for line in message.splitlines() if line.strip()]
    marker = next((n for n, line in enumerate(lines) if set(line.strip()) == {"^"}), None)
    if marker is not None:
        yield from lines[marker - 1 : marker + 1]


def _plain(detail: str) -> str:
    if "equals, space or end" in detail or "Malformed" in detail or "space or end" in detail:
        return f"{detail} (options are separated by spaces: {{a=1 b=2}}; quote values with dots or slashes)"
    return detail


def _expanded(specs: Iterable[ArgSpec]) -> Iterator[ArgSpec]:
    from xdsl.utils.arg_spec import ArgSpec

    for spec in specs:
        if spec.name in PASSES:
            yield spec
            continue
        from trc.passes.pipelines import NAMED_PIPELINES

        pipeline = NAMED_PIPELINES.get(spec.name)
        if pipeline is None:
            raise CompileError(_unknown("pass", spec.name, [*PASSES, *NAMED_PIPELINES]))
        given = {key.replace("_", "-"): _text(value) for key, value in spec.parameters.items()}
        for name, options in pipeline(given):
            yield ArgSpec(name, {o: value if isinstance(value, tuple) else (value,) for o, value in options.items()})


def _text(values: ParameterListType) -> str:
    return ",".join(str(value).lower() if isinstance(value, bool) else str(value) for value in values)


def _build(spec: ArgSpec) -> ModulePass:
    """A pass with its options, each checked by itself so that a message names the one that is wrong."""
    from xdsl.utils.arg_spec import ArgSpec

    cls = load_pass(spec.name)
    fields = {field.name for field in _fields(cls)}
    hints = get_type_hints(cls)
    parameters: dict[str, ParameterListType] = {}
    for key, values in spec.parameters.items():
        check_whole(f"option {key} of pass {spec.name}", *values)
        field = key.replace("-", "_")
        if field not in fields:
            options = [name.replace("_", "-") for name in sorted(fields)]
            takes = f"it takes {', '.join(options)}" if options else "it takes none"
            raise CompileError(f"{_unknown(f'option of pass {spec.name}', key, options)} ({takes})")
        wants_floats = hints[field] in (float, _FLOATS)
        parameters[field] = tuple(map(_as_float, values)) if wants_floats else values
    missing = sorted(cls.required_fields() - parameters.keys())
    if missing:
        raise CompileError(f"pass {spec.name} needs the option {', '.join(m.replace('_', '-') for m in missing)}")
    required = {field: parameters[field] for field in cls.required_fields()}
    for field, values in parameters.items():
        try:
            cls.from_spec(ArgSpec(spec.name, {**required, field: values}))
        except CompileError:
            raise
        except Exception:
            if field in required and len(required) > 1:
                continue
            given = _text(values) or "nothing"
            option = field.replace("_", "-")
            wanted = _type_text(hints[field])
            raise CompileError(f"option {option} of pass {spec.name} is {wanted}, not '{given}'") from None
    try:
        return cls.from_spec(ArgSpec(spec.name, parameters))
    except CompileError:
        raise
    except Exception as err:
        raise CompileError(f"pass {spec.name}: {err}") from None


def check_whole(what: str, *values: object) -> None:
    """CompileError for a whole number that IR cannot hold."""
    for value in values:
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise CompileError(f"{what}: {value} does not fit into 64 bits")


def _as_float(value: ParameterType) -> ParameterType:
    """A number where a float is wanted: `1` and `1e-8` (a word to xDSL) are floats too."""
    if isinstance(value, bool):
        return value
    try:
        return float(value)
    except ValueError:
        return value


_FLOATS = tuple[float, ...]

_TYPE_TEXTS = {"bool": "true or false", "int": "an integer", "float": "a number", "str": "a word or a quoted string"}


def _type_text(hint: object) -> str:
    if hint == _FLOATS:
        return "numbers between commas"
    if isinstance(hint, type):
        return _TYPE_TEXTS.get(hint.__name__, hint.__name__)
    return str(hint).replace(" | None", "")


def _fields(cls: type[ModulePass]) -> list[dataclasses.Field[object]]:
    return [field for field in dataclasses.fields(cls) if field.name != "name" and field.init]


def _unknown(what: str, word: str, choices: Iterable[str]) -> str:
    close = get_close_matches(word, list(choices), n=1)
    return f"unknown {what}: '{word}'" + (f"; did you mean '{close[0]}'?" if close else "")
