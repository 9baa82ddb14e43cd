"""Import hook that keeps old module paths and names working, with a DeprecationWarning."""

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
MOVED = frozenset({"LinearComparison", "UserComparison", "compare_linear", "compare_users"})
"""Names that `metricshuffle` once exported and that are now in another distribution."""
PAPERS = "metricshuffle_papers"
PAPERS_DISTRIBUTION = "metricshuffle-papers"


@cache
def _table() -> dict[str, dict[str, str]]:
    content: dict[str, dict[str, str]] = json.loads(
        Path(__file__).with_name("_old_names.json").read_text(encoding="utf-8")
    )
    return content


def _warn(old: str, new: str) -> None:
    warnings.warn(
        f"{old} is now {new}; the old name will be removed in the next version.",
        DeprecationWarning,
        stacklevel=4,
    )


def import_papers(name: str, module: str = PAPERS) -> ModuleType:
    """Import a module of metricshuffle-papers, where `name` of this package has moved.

    Raises:
        MissingExtra: if metricshuffle-papers is not installed.
    """
    from metricshuffle.errors import MissingExtra

    try:
        return import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name != PAPERS:
            raise
        raise MissingExtra(
            f"{name} is part of {PAPERS_DISTRIBUTION} now; install it with: pip install "
            f"{PAPERS_DISTRIBUTION}"
        ) from None


def moved(name: str) -> Any:
    """Return a name that moved to metricshuffle-papers, with a DeprecationWarning.

    Raises:
        MissingExtra: if metricshuffle-papers is not installed.
    """
    papers = import_papers(name)
    warnings.warn(
        f"metricshuffle.{name} moved: use {PAPERS}.{name} of the distribution "
        f"{PAPERS_DISTRIBUTION}.",
        DeprecationWarning,
        stacklevel=3,
    )
    return getattr(papers, name)


def new_name(name: str, listed: Mapping[str, str]) -> str:
    """Return the current public name for an old one, or the name itself if it was not renamed."""
    new = None if name in listed or name.startswith("__") else _table()["names"].get(name)
    if new is None or new not in listed:
        return name
    _warn(f"{PACKAGE}.{name}", f"{PACKAGE}.{new}")
    return new


class _OldModule(ModuleType):
    """Module at an old path: forwards attributes, also old names, to the new module."""

    def __getattr__(self, name: str) -> Any:
        target = _table()["modules"].get(self.__name__)
        if name.startswith("__") or not target:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        new = _import_new(self.__name__, target)
        table = _table()
        known = table["members"].get(f"{self.__name__}:{name}") or table["names"].get(name, name)
        return getattr(new, name) if hasattr(new, name) else getattr(new, known)


def _import_new(old: str, new: str) -> ModuleType:
    """Import the module that an old path leads to, here or in metricshuffle-papers."""
    return import_module(new) if new.startswith(PACKAGE + ".") else import_papers(old, new)


class _Finder(MetaPathFinder, Loader):
    """Meta path finder for old module paths; it comes last, so it finds missing modules only."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(PACKAGE + "."):
            return None
        if name in _table()["removed"]:
            raise ModuleNotFoundError(
                f"{name} was removed: {_table()['removed'][name]}.", name=name
            )
        if name not in _table()["modules"]:
            return None
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _OldModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        new = _table()["modules"][module.__name__]
        if new:
            _import_new(module.__name__, new)
            _warn(module.__name__, new)


def install() -> None:
    """Register the import hook. The table of old names is read on first use."""
    if not any(
        type(finder).__name__ == "_Finder" and type(finder).__module__ == __name__
        for finder in sys.meta_path
    ):
        sys.meta_path.append(_Finder())
