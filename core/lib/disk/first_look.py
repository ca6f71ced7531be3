"""A quick check whether a document surely matches its schema. Any doubt is left to jsonschema, which also explains what is wrong;
importing jsonschema takes longer than everything else that a valid plan needs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "integer": (int,),
    "number": (int, float),
}
_SILENT = ("$schema", "$defs", "title", "description", "default")
Look = Callable[[Any, Any, Any, Any], bool]


class _Unsure(Exception):  # noqa: N818 - not an error: somebody else is to look
    pass


def surely_valid(document: Any, schema: Any) -> bool:
    """True only where it is certain. A keyword, or a value, that is not known here makes it uncertain."""
    try:
        return _matches(document, schema, schema)
    except (_Unsure, RecursionError):
        return False


def _matches(document: Any, schema: Any, root: Any) -> bool:
    if isinstance(schema, bool):
        return schema
    rules = cast(dict[str, Any], schema)
    for keyword in rules:
        if keyword not in _LOOKS and keyword not in _SILENT:
            raise _Unsure(keyword)
    return all(keyword in _SILENT or _LOOKS[keyword](document, rules[keyword], rules, root) for keyword in rules)


def _type(document: Any, kinds: Any, _rules: Any, _root: Any) -> bool:
    wanted = cast(list[str], kinds) if isinstance(kinds, list) else [str(kinds)]
    if isinstance(document, bool):
        return "boolean" in wanted
    if isinstance(document, float) and "integer" in wanted:
        raise _Unsure("2.0 is a whole number")
    return any(isinstance(document, _TYPES[kind]) for kind in wanted if kind != "boolean")


def _properties(document: Any, known: Any, _rules: Any, root: Any) -> bool:
    fields = cast(dict[str, Any], document) if isinstance(document, dict) else {}
    return all(_matches(fields[name], known[name], root) for name in fields if name in known)


def _additional(document: Any, rest: Any, rules: Any, root: Any) -> bool:
    fields = cast(dict[str, Any], document) if isinstance(document, dict) else {}
    patterns = rules.get("patternProperties", {})
    others = [n for n in fields if n not in rules.get("properties", {}) and not any(re.search(p, n) for p in patterns)]
    return all(_matches(fields[name], rest, root) for name in others)


def _patterns(document: Any, patterns: Any, _rules: Any, root: Any) -> bool:
    fields = cast(dict[str, Any], document) if isinstance(document, dict) else {}
    return all(_matches(v, s, root) for p, s in patterns.items() for n, v in fields.items() if re.search(p, n))


def _reference(document: Any, place: Any, _rules: Any, root: Any) -> bool:
    head, *parts = str(place).split("/")
    target = root
    for part in parts:
        target = cast(dict[str, Any], target).get(part) if isinstance(target, dict) else None
    if head != "#" or target is None:
        raise _Unsure(place)
    return _matches(document, target, root)


def _unique(items: list[Any]) -> bool:
    if not all(isinstance(item, str) for item in items):
        raise _Unsure("only texts are compared here")
    return len(set(items)) == len(items)


def _number(document: Any) -> float | None:
    return document if isinstance(document, int | float) and not isinstance(document, bool) else None


def _unlike(a: Any, b: Any) -> bool:
    """Python takes True for 1; JSON does not."""
    if isinstance(a, list | dict):
        raise _Unsure("what is in it may be alike in one and not in the other")
    return a != b or isinstance(a, bool) != isinstance(b, bool)


_LOOKS: dict[str, Look] = {
    "type": _type,
    "properties": _properties,
    "additionalProperties": _additional,
    "patternProperties": _patterns,
    "$ref": _reference,
    "required": lambda d, names, _r, _root: not isinstance(d, dict) or all(n in d for n in names),
    "items": lambda d, s, _r, root: not isinstance(d, list) or all(_matches(v, s, root) for v in cast(list[Any], d)),
    "propertyNames": lambda d, s, _r, root: not isinstance(d, dict) or all(_matches(n, s, root) for n in cast(dict[str, Any], d)),
    "enum": lambda d, values, _r, _root: any(not _unlike(d, v) for v in values),
    "const": lambda d, value, _r, _root: not _unlike(d, value),
    "oneOf": lambda d, schemas, _r, root: sum(_matches(d, s, root) for s in schemas) == 1,
    "anyOf": lambda d, schemas, _r, root: any(_matches(d, s, root) for s in schemas),
    "allOf": lambda d, schemas, _r, root: all(_matches(d, s, root) for s in schemas),
    "pattern": lambda d, p, _r, _root: not isinstance(d, str) or re.search(p, d) is not None,
    "minLength": lambda d, n, _r, _root: not isinstance(d, str) or len(d) >= n,
    "maxLength": lambda d, n, _r, _root: not isinstance(d, str) or len(d) <= n,
    "minItems": lambda d, n, _r, _root: not isinstance(d, list) or len(cast(list[Any], d)) >= n,
    "maxItems": lambda d, n, _r, _root: not isinstance(d, list) or len(cast(list[Any], d)) <= n,
    "minProperties": lambda d, n, _r, _root: not isinstance(d, dict) or len(cast(dict[str, Any], d)) >= n,
    "uniqueItems": lambda d, wanted, _r, _root: not isinstance(d, list) or not wanted or _unique(cast(list[Any], d)),
    "minimum": lambda d, n, _r, _root: (v := _number(d)) is None or v >= n,
    "maximum": lambda d, n, _r, _root: (v := _number(d)) is None or v <= n,
    "exclusiveMinimum": lambda d, n, _r, _root: (v := _number(d)) is None or v > n,
}
