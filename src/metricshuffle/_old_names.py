"""Keeps the module paths and public names of the version before importable, with a DeprecationWarning that names the new ones."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGE = "metricshuffle"


@cache
def _table() -> dict[str, dict[str, str]]:
    content: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("_old_names.json").read_text(encoding="utf-8"))
    return content


def _warn(old: str, new: str) -> None:
    warnings.warn(f"{old} is now {new}; the old name goes with the next version.", DeprecationWarning, stacklevel=4)


def new_name(name: str, listed: Mapping[str, str]) -> str:
    """The public name that another one was renamed to; the name itself if it was not."""
    new = None if name in listed or name.startswith("__") else _table()["names"].get(name)
    if new is None or new not in listed:
        return name
    _warn(f"{PACKAGE}.{name}", f"{PACKAGE}.{new}")
    return new


class _OldModule(ModuleType):
    """Offers what the new module offers, also under old names."""

    def __getattr__(self, name: str) -> Any:
        target = _table()["modules"].get(self.__name__)
        if name.startswith("__") or not target:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        new = import_module(target)
        table = _table()
        known = table["members"].get(f"{self.__name__}:{name}") or table["names"].get(name, name)
        return getattr(new, name) if hasattr(new, name) else getattr(new, known)


class _Finder(MetaPathFinder, Loader):
    """Comes last, so that it is asked for modules only that are not there."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not name.startswith(PACKAGE + ".") or name not in _table()["modules"]:
            return None
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _OldModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        new = _table()["modules"][module.__name__]
        if new:
            import_module(new)
            _warn(module.__name__, new)


def install() -> None:
    """Have old module paths found; reads nothing until one is asked for."""
    if not any(type(finder).__name__ == "_Finder" and type(finder).__module__ == __name__ for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
