"""Reading YAML: whole, without duplicate keys, checked against its schema, with the file and line in every error."""

from __future__ import annotations

import contextlib
import os
import re
from functools import cache
from pathlib import Path
from typing import Any, cast

import yaml

from lib import names
from lib.contract import HOUSE, Json, StrataError, nearest
from lib.disk import schemas

CONFIG = HOUSE / "config"
MODELS = CONFIG / "models.yaml"


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[reportGeneralTypeIssues,reportUntypedBaseClass]
    """YAML 1.2's booleans: `on` and `yes` are words, and a stage may well have a key called `on`."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_words = re.compile(r"true|True|TRUE|false|False|FALSE")
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", _words, list("tTfF"))  # type: ignore[reportUnknownMemberType]


MOST_NODES = 200_000


class ConfigError(StrataError):
    def __init__(self, file: Path, line: int, message: str, hint: str = "") -> None:
        place = f"{file}:{line}" if line else str(file)
        super().__init__("BAD_CONFIG", f"{place}: {message}", hint)


class Document:
    """A YAML file and where each part of it stands."""

    def __init__(self, file: Path, text: str, first_line: int = 1) -> None:
        self.file = file
        self.first_line = first_line
        self.wrapped = ""
        try:
            loader: Any = _Loader(text)
            self.node: Any = loader.get_single_node()
            self._bounded(self.node, {})
            self._no_duplicates(self.node)
            self.data: Any = loader.construct_document(self.node) if self.node else None
        except yaml.MarkedYAMLError as error:
            line = first_line + (error.problem_mark.line if error.problem_mark else 0)
            hint = "check the indentation, and quote a value that holds : # or braces"
            raise ConfigError(file, line, f"not valid YAML: {error.problem or error}", hint) from None
        except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
            raise ConfigError(file, 0, f"not valid YAML: {error}") from None

    def _bounded(self, node: Any, sizes: dict[int, int]) -> int:
        """How much it is with every alias written out. A few lines of aliases of aliases are more than any memory holds."""
        if not isinstance(node, yaml.CollectionNode):
            return 1
        if id(node) in sizes:
            if not sizes[id(node)]:
                raise ConfigError(self.file, self.first_line + node.start_mark.line, "an alias leads back to itself", "remove it")
            return sizes[id(node)]
        sizes[id(node)] = 0  # begun
        inner: list[Any] = [v for pair in node.value for v in pair] if isinstance(node, yaml.MappingNode) else node.value
        sizes[id(node)] = 1 + sum(self._bounded(part, sizes) for part in inner)
        if sizes[id(node)] > MOST_NODES:
            line = self.first_line + node.start_mark.line
            raise ConfigError(self.file, line, f"more than {MOST_NODES} values, aliases counted", "make it smaller")
        return sizes[id(node)]

    def _no_duplicates(self, node: Any) -> None:
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                line = self.first_line + key.start_mark.line
                if not isinstance(key, yaml.ScalarNode):
                    raise ConfigError(self.file, line, "a key must be a plain word")
                if key.tag not in ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"):
                    raise ConfigError(self.file, line, f"the key {key.value} is no word", f'quote it: "{key.value}"')
                if key.value in seen:
                    raise ConfigError(
                        self.file,
                        self.first_line + key.start_mark.line,
                        f"the key {key.value!r} is used twice",
                        "keep one of them",
                    )
                seen.add(key.value)
                self._no_duplicates(value)
        elif isinstance(node, yaml.SequenceNode):
            for value in node.value:
                self._no_duplicates(value)
        elif isinstance(node, yaml.ScalarNode):
            line = self.first_line + node.start_mark.line
            if "\0" in node.value:
                raise ConfigError(self.file, line, "a text with a NUL in it", "no path, argument or file can hold one")
            if node.tag == "tag:yaml.org,2002:float" and re.fullmatch(r"[-+]?\.(inf|nan)", node.value, re.I):
                raise ConfigError(self.file, line, f"{node.value} is not a number", "give a number")

    def wrap(self, key: str, keep: tuple[str, ...]) -> None:
        """Reads a document as if all but `keep` stood in a list of one under `key`. Places stay those of the file."""
        whole = cast(Json, self.data)
        inner = {k: v for k, v in whole.items() if k not in keep or k == "name"}
        self.data = {k: v for k, v in whole.items() if k in keep} | {key: [inner]}
        self.wrapped = key

    def line(self, path: list[Any]) -> int:
        """The line of the deepest part of `path` that exists."""
        node = self.node
        if self.wrapped and path[:2] == [self.wrapped, 0]:
            path = path[2:]
        line = node.start_mark.line if node else 0
        for part in path:
            if isinstance(node, yaml.MappingNode):
                pair = next(((k, v) for k, v in node.value if k.value == str(part)), None)
                if not pair:
                    break
                line, node = pair[0].start_mark.line, pair[1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                line = node.start_mark.line
            else:
                break
        return line + self.first_line

    def error(self, path: list[Any], message: str, hint: str = "") -> ConfigError:
        return ConfigError(self.file, self.line(path), message, hint)

    def check(self, schema_name: str) -> Json:
        if os.getenv(names.CHECKED):  # an ancestor has: once more in every process would cost each a quarter of a second
            return cast(Json, self.data)
        for path, message in schemas.problems(self.data, schemas.read(schema_name)):
            raise self.error(path, f"{schemas.pointer(path)}: {message}", f"the format is in config/schemas/{schema_name}.json")
        return cast(Json, self.data)


def read(file: Path) -> Document:
    return Document(file, _text(file))


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(file, 0, f"cannot be read: {error}") from None


@cache
def model_id(tier: str) -> str:
    """A tier's model from config/models.yaml; anything that is not a tier is a model id and passes through."""
    if not tier.endswith("-tier"):
        return tier
    known = _tiers(_text(MODELS))
    if tier not in known:
        raise StrataError("UNKNOWN_MODEL", f"there is no tier {tier!r}", nearest(tier, known))
    return known[tier]


@cache
def _tiers(text: str) -> dict[str, str]:
    document = Document(MODELS, text)
    tiers: Any = cast(Json, document.data).get("tiers") if hasattr(document.data, "get") else None
    if not isinstance(tiers, dict) or not all(isinstance(v, str) for v in cast(Json, tiers).values()):
        document.check("models")  # only where something looks wrong: reading a schema costs more than reading the tiers
    return cast(dict[str, str], tiers)


def prepare_for_forks() -> None:
    with contextlib.suppress(StrataError):  # whoever needs it says what is wrong with it
        _tiers(_text(MODELS))
