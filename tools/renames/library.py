"""The files of a tree, parsed once: which modules there are, what they define and what they pass on from others."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tools.renames.mapping import Moves, RenameMap, dotted, moves
from tools.renames.scopes import Origin, Scopes, every_argument

TEXT = (
    ".md",
    ".toml",
    ".jinja",
    ".js",
    ".ts",
    ".mjs",
    ".css",
    ".html",
    ".txt",
    ".cfg",
    ".yml",
    ".yaml",
    ".json",
    ".ipynb",
    ".lock",
    ".cff",
)
NO_SUFFIX = ("Makefile", "Dockerfile", "LICENSE")


@dataclass(frozen=True)
class Parsed:
    """A Python file: its text, its tree and its scopes."""

    path: str
    text: str
    tree: ast.Module
    scopes: Scopes

    @classmethod
    def of(cls, path: str, text: str) -> Parsed:
        tree = ast.parse(text)
        return cls(path, text, tree, Scopes(tree))


class Library:
    """All files of a tree and what the map does to them."""

    def __init__(self, texts: Mapping[str, str], paths: list[str], renames: RenameMap) -> None:
        self.texts, self.paths, self.renames = texts, paths, renames
        self.moves: Moves = moves(renames, paths)

    @cached_property
    def files(self) -> dict[str, Parsed]:
        """Every Python file."""
        return {path: Parsed.of(path, text) for path, text in self.texts.items() if path.endswith((".py", ".pyi"))}

    @cached_property
    def modules(self) -> dict[str, str]:
        """Dotted name -> path."""
        return {dotted(path): path for path in self.texts if path.endswith(".py")}

    @cached_property
    def packages(self) -> set[str]:
        """Dotted names of folders with modules, also of those without an `__init__.py`."""
        parts = [name.split(".") for name in self.modules]
        return {".".join(one[:count]) for one in parts for count in range(1, len(one))}

    @cached_property
    def new_modules(self) -> dict[str, str]:
        """Old dotted name -> new one, of all modules and of the packages that move as a whole."""
        named = {dotted(old): dotted(new) for old, new in self.moves.paths.items() if old.endswith(".py")}
        for package in self.packages - set(named):
            prefix = package + "."
            inside = [(old.removeprefix(package), new) for old, new in named.items() if old.startswith(prefix)]
            tops = {new.removesuffix(tail) if new.endswith(tail) else None for tail, new in inside}
            top = tops.pop() if len(tops) == 1 else None
            named[package] = top or package
        return named

    def is_module(self, name: str) -> bool:
        return name in self.modules or name in self.packages

    def imports_at_top(self, module: str) -> dict[str, Origin]:
        """What a module imports, or lists in the `.pyi` beside it."""
        path = self.modules.get(module)
        if path is None:
            return {}
        stub = self.files.get(path + "i")
        own = self.files[path].scopes.top
        listed = stub.scopes.top.imports if stub else {}
        return {**listed, **{name: origin for name, origin in own.imports.items() if name not in own.otherwise}}

    def submodule(self, module: str, name: str) -> str:
        """The module that `from module import name` binds; empty if there is none, or the package has a name of its own that hides it."""
        full = f"{module}.{name}"
        hiding = self.imports_at_top(module).get(name)
        hidden = hiding is not None and (hiding.module, hiding.name) != (module, name)
        return full if self.is_module(full) and not hidden else ""

    def home(self, module: str, name: str) -> tuple[str, str]:
        """Where a name that a module offers is defined."""
        seen = set()
        while (module, name) not in seen and not self.submodule(module, name):
            seen.add((module, name))
            origin = self.imports_at_top(module).get(name)
            if origin is None or origin.name is None or not self.is_module(origin.module):
                break
            module, name = origin.module, origin.name
        return module, name

    def new_name(self, module: str, name: str) -> str:
        """The new name of what a module of this tree offers under a name."""
        owner, known = self.home(module, name)
        scoped = self.renames.in_file.get(self.modules.get(owner, ""), {})
        new = scoped.get(known) or self.renames.names.get(known, known)
        return new if known == name else self.renames.names.get(name, name)

    def parameters(self, path: str, qualified: str) -> set[str]:
        """The parameters of a function of this tree."""
        return self._parameters.get((path, qualified), set())

    @cached_property
    def _parameters(self) -> dict[tuple[str, str], set[str]]:
        found: dict[tuple[str, str], set[str]] = {}
        for path in {path for path, _ in self.renames.in_function}:
            file = self.files[path]
            for node in ast.walk(file.tree):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    found[path, file.scopes.of[id(node.args)].qualified] = {one.arg for one in every_argument(node.args)}
        return found


def read_working_tree(root: Path, renames: RenameMap) -> Library:
    """The tracked files of a working tree."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True)  # noqa: S607
    paths = [path for path in listed.stdout.split("\0") if path and (root / path).is_file()]
    return Library({path: (root / path).read_text(encoding="utf-8") for path in paths if is_text(path)}, paths, renames)


def read_revision(root: Path, revision: str, renames: RenameMap) -> Library:
    """The files of a commit."""
    listed = subprocess.run(["git", "ls-tree", "-rz", revision], cwd=root, capture_output=True, text=True, check=True)  # noqa: S603, S607
    rows = [row.split("\t", 1) for row in listed.stdout.split("\0") if row]
    wanted = {path: about.split()[2] for about, path in rows if is_text(path)}
    answer = subprocess.run(
        ["git", "cat-file", "--batch"],  # noqa: S607
        cwd=root,
        input="\n".join(wanted.values()).encode(),
        capture_output=True,
        check=True,
    ).stdout
    texts, at = {}, 0
    for path in wanted:
        end = answer.index(b"\n", at)
        size = int(answer[at:end].split()[2])
        texts[path] = answer[end + 1 : end + 1 + size].decode()
        at = end + 1 + size + 1
    return Library(texts, [path for _, path in rows], renames)


def is_text(path: str) -> bool:
    return path.endswith((".py", ".pyi", *TEXT)) or path.rpartition("/")[2] in NO_SUFFIX
