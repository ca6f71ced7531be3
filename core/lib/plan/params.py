"""Parameters of plans and orchestrators: what can be given, of which type, and filling a plan with what was."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from lib.contract import Json, nearest, usage
from lib.plan.written import Param

_WHOLE = re.compile(r"\{param\.([a-z][a-z0-9_-]*)\}")
_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def values(of: str, params: Mapping[str, Param], given: Mapping[str, Any], needed: bool = True) -> dict[str, Any]:
    """Every parameter with its value, as its type says. `needed`: one that is neither given nor optional is an error; otherwise
    its name stands in its place."""
    for name in given:
        if name not in params:
            usage(f"{of} has no parameter {name!r}", nearest(name, params, "it has"))
    found: dict[str, Any] = {}
    for name, param in params.items():
        value = given.get(name, param.default)
        if value is None or value == "":
            if needed and not param.optional:
                usage(f"{of} needs the parameter {name!r}: {param.about or param.type}", f"--param {name}=…")
            found[name] = value if param.optional or needed else f"<{name}>"
            continue
        found[name] = _typed(name, param, value)
    return found


def wrong_default(name: str, param: Param) -> tuple[str, str] | None:
    """What is wrong with the default of a parameter, and what to do; None where it fits."""
    default = param.default
    is_list = isinstance(default, list)
    if default is None or (param.type == "list" and not is_list and not isinstance(default, str)):
        return None if default is None else (f"the default of {name!r} is no list", "change its type, or the default")
    if is_list and param.type != "list":
        return f"the default of {name!r} is no {param.type}", "change its type, or the default"
    given: list[Any] = _list(name, default) if param.type == "list" else [default]
    odd = next((one for one in given if param.choices and str(one) not in param.choices), None)
    if odd is None:
        return None
    return f"the default of {name!r} is {odd!r}, which is none of its choices", f"one of: {', '.join(param.choices)}"


def _typed(name: str, param: Param, value: Any) -> Any:
    if any("\0" in text for text in _texts(value)):
        usage(f"the parameter {name!r} holds a NUL", "no path, argument or file can hold one")
    made = _OF_TYPE[param.type](name, value)
    for one in cast(list[Any], made) if isinstance(made, list) else [made]:
        if param.choices and str(one) not in param.choices:
            usage(f"the parameter {name!r} is {one!r}", f"one of: {', '.join(param.choices)}")
    return cast(Any, made)


def _text(name: str, value: Any) -> str:
    if isinstance(value, list | dict):
        usage(f"the parameter {name!r} is one text, not a list", "give one value")
    return value if isinstance(value, str) else json.dumps(value)


def _list(name: str, value: Any) -> list[Any]:
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            return cast(list[Any], json.loads(value))
        except ValueError as error:
            usage(f"the parameter {name!r} begins like a JSON list and is none: {error}", f"--param {name}=a,b,c")
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return cast(list[Any], value) if isinstance(value, list) else [value]


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number):
        usage(f"the parameter {name!r} is a number, not {value!r}", f"--param {name}=3")
    return int(number) if number.is_integer() else number


def _boolean(name: str, value: Any) -> bool:
    word = str(value).lower()
    if word not in _WORDS:
        usage(f"the parameter {name!r} is true or false, not {value!r}", f"--param {name}=true")
    return _WORDS[word]


_OF_TYPE: dict[str, Callable[[str, Any], Any]] = {
    "text": _text,
    "file": _text,
    "list": _list,
    "number": _number,
    "boolean": _boolean,
}


TYPES = tuple(_OF_TYPE)


def _texts(value: Any) -> list[str]:
    return [v for v in (cast(list[Any], value) if isinstance(value, list) else [value]) if isinstance(v, str)]


def fill(data: Any, known: Mapping[str, Any], unknown: Callable[[list[Any], str], Exception], at: list[Any] | None = None) -> Any:
    """A plan with every `{param.name}` replaced: alone, it is the value as it is; in a text, its words. `unknown` makes the error
    for a name that no parameter has."""
    at = at or []
    if isinstance(data, dict):
        return {key: fill(value, known, unknown, [*at, key]) for key, value in cast(Json, data).items()}
    if isinstance(data, list):
        return [fill(value, known, unknown, [*at, place]) for place, value in enumerate(cast(list[Any], data))]
    if not isinstance(data, str) or "{param." not in data:
        return data
    for name in _WHOLE.findall(data):
        if name not in known:
            raise unknown(at, name)
    alone = _WHOLE.fullmatch(data)
    return known[alone[1]] if alone else _WHOLE.sub(lambda found: in_words(known[found[1]]), data)


def in_words(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join(in_words(v) for v in cast(list[Any], value))
    return value if isinstance(value, str) else json.dumps(value)
