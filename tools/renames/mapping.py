"""The map of renames: what `renames.toml` says, and where it sends each file and module."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

PACKAGE = "metricshuffle"
SOURCE = f"src/{PACKAGE}"
OTHER_ROOTS = frozenset({"tests", "tools", "benchmarks", "examples", "docs", "clients"})
"""Folders beside the package: keys that start with one of them are paths from the root of the repository."""
SECTIONS = frozenset({"modules", "packages", "names", "scoped", "strings", "allowed"})


class MapError(Exception):
    """The map cannot be read or applied; the text says what to change."""


def module_key(text: str) -> tuple[str, ...]:
    """`service/standing`, `service.standing` and `service/standing.py` as one path from the root, without its suffix."""
    parts = tuple(text.removesuffix(".py").strip("/").replace(".", "/").split("/"))
    return parts if parts[0] in OTHER_ROOTS else (*SOURCE.split("/"), *parts)


def file_key(text: str) -> str:
    """The path from the root of a Python file that a key of `[scoped]` names."""
    return "/".join(module_key(text)) + ".py"


def dotted(path: str) -> str:
    """The dotted name under which a Python file is imported."""
    parts = PurePosixPath(path).with_suffix("").parts
    parts = parts[1:] if parts[0] == "src" else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@dataclass(frozen=True)
class RenameMap:
    """What `renames.toml` holds, with paths from the root of the repository."""

    modules: Mapping[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)
    packages: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    """The docstrings of folders that are new."""
    names: Mapping[str, str] = field(default_factory=dict)
    in_file: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    in_function: Mapping[tuple[str, str], Mapping[str, str]] = field(default_factory=dict)
    """(file, qualified name of a function) -> its local names."""
    strings: Mapping[str, str] = field(default_factory=dict)
    file_strings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    allowed: Mapping[str, str] = field(default_factory=dict)
    """Names that `check` would refuse, each with the reason why it may be renamed."""

    def new_path(self, path: str) -> str:
        """Where a file goes: the longest key that is the file or a folder above it."""
        pure = PurePosixPath(path)
        if pure.suffix == ".py" and (*pure.parts[:-1], pure.stem) in self.modules:
            return "/".join(self.modules[(*pure.parts[:-1], pure.stem)]) + ".py"
        for count in range(len(pure.parts) - 1, 0, -1):
            if pure.parts[:count] in self.modules:
                return "/".join(self.modules[pure.parts[:count]] + pure.parts[count:])
        return path


def _table(values: object, where: str) -> dict[str, str]:
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise MapError(f"[{where}] must map names to names; every value must be a string.")
    return dict(values)


def load(path: Path) -> RenameMap:
    """Read the map; MapError says what is wrong in it."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise MapError(f"{path}: {error}") from None
    if unknown := sorted(set(content) - SECTIONS):
        raise MapError(f"{path}: unknown section [{unknown[0]}]; there are {', '.join(sorted(SECTIONS))}.")
    in_file: dict[str, Mapping[str, str]] = {}
    in_function: dict[tuple[str, str], Mapping[str, str]] = {}
    for key, values in content.get("scoped", {}).items():
        where, _, function = key.partition("::")
        names = _table(values, f'scoped."{key}"')
        if function:
            in_function[file_key(where), function] = names
        else:
            in_file[file_key(where)] = names
    strings, file_strings = {}, {}
    for key, value in content.get("strings", {}).items():
        if isinstance(value, dict):
            file_strings[file_key(key)] = _table(value, f'strings."{key}"')
        else:
            strings[key] = str(value)
    return RenameMap(
        modules={module_key(old): module_key(new) for old, new in _table(content.get("modules", {}), "modules").items()},
        packages={module_key(folder): text for folder, text in _table(content.get("packages", {}), "packages").items()},
        names=_table(content.get("names", {}), "names"),
        in_file=in_file,
        in_function=in_function,
        strings=strings,
        file_strings=file_strings,
        allowed=_table(content.get("allowed", {}), "allowed"),
    )


@dataclass(frozen=True)
class Moves:
    """Which files move, which folders are left empty and which are new."""

    paths: Mapping[str, str]
    """Old path -> new path of every file that stays in the tree."""
    removed: tuple[str, ...]
    """`__init__.py` files of folders that lose all their modules."""
    created: Mapping[str, str]
    """`__init__.py` files of new folders, with their text."""

    @property
    def modules(self) -> dict[str, str]:
        """Old dotted name -> new dotted name of every module that is renamed."""
        pairs = ((dotted(old), dotted(new)) for old, new in self.paths.items() if old.endswith(".py"))
        return {old: new for old, new in pairs if old != new}


def moves(renames: RenameMap, paths: Iterable[str]) -> Moves:
    """Where the files of a tree go."""
    targets = {path: renames.new_path(path) for path in sorted(paths)}
    inits = [path for path, new in targets.items() if path == new and path.endswith("/__init__.py")]
    removed = []
    for path in sorted(inits, key=lambda one: -one.count("/")):
        folder = path.removesuffix("__init__.py")
        inside = [old for old in targets if old.startswith(folder) and old != path]
        stays = any(new.startswith(folder) for new in targets.values() if new != path)
        if inside and not stays:
            removed.append(path)
            del targets[path]
    present = set(targets.values())
    created: dict[str, str] = {}
    for new in sorted(present):
        parts = PurePosixPath(new).parts
        if parts[:2] != tuple(SOURCE.split("/")) or not new.endswith(".py"):
            continue
        for count in range(3, len(parts)):
            init = "/".join((*parts[:count], "__init__.py"))
            if init not in present:
                created[init] = f'"""{renames.packages.get(parts[:count], "")}"""\n'
    return Moves(targets, tuple(removed), created)
