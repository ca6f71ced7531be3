"""Importing a library without a part of it that it loads at once and we never use.

The agent SDK imports `mcp` and `jsonschema`, which take six times as long as the rest of it, for servers that run inside this
process; we start none. And it imports `importlib.metadata`, with all of `email`, to name an app that is not a script. While the
SDK is imported a stand-in answers for them: whatever is asked for by name is there, and refuses to be used. An SDK that needs
more of them than names gets the real ones.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Named:
    """What a stand-in module gives for any name: something to subclass and to annotate with."""

    def __init_subclass__(cls, **_: Any) -> None:
        pass

    def __init__(self, *_: Any, **__: Any) -> None:
        raise RuntimeError(f"{type(self).__name__} is only a stand-in: Strata imports the SDK without it")


class _Module(ModuleType):
    __path__ = []  # noqa: RUF012 - what makes a module a package

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (_Named,), {})
        setattr(self, name, made)
        return made


class _Finder:
    def __init__(self, packages: tuple[str, ...]) -> None:
        self.packages = packages

    def find_spec(self, name: str, _path: Sequence[str] | None = None, _target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if _in(name, self.packages) else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


@contextmanager
def standing_in(user: str, *packages: str) -> Generator[None]:
    """While `user` is imported, nothing of these packages is. Fails as the import fails, leaving none of them loaded."""
    before = set(sys.modules)
    finder = _Finder(packages)
    sys.meta_path.insert(0, finder)  # type: ignore[arg-type]
    try:
        yield
    except BaseException:  # whatever it was: a half-imported library must not stay behind
        for added in set(sys.modules) - before:
            if _in(added, (user, *packages)):
                _forget(added)
        raise
    finally:
        sys.meta_path.remove(finder)  # type: ignore[arg-type]


def give_back(*packages: str) -> None:
    """From now on the real ones are imported, for all but who got the stand-ins."""
    for name in [n for n, module in sys.modules.items() if _in(n, packages) and isinstance(module, _Module)]:
        _forget(name)


def _in(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def _forget(module: str) -> None:
    del sys.modules[module]
    above, _, name = module.rpartition(".")
    if above in sys.modules:
        vars(sys.modules[above]).pop(name, None)
