"""Renames in text that is no code: comments, docstrings, documents and templates."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property

from tools.renames.library import Library
from tools.renames.mapping import OTHER_ROOTS, PACKAGE, SOURCE

DOTTED = re.compile(r"(?<![\w./@-])([a-z_]\w*(?:\.[A-Za-z_]\w*)+)\b(?!/)")
FILE = re.compile(r"(?<![\w*-])((?:[\w-]+/)+[\w-]+\.(?:py|pyi|jinja|css|js|json|md))\b")
FOLDER = re.compile(rf"(?<![\w*-])((?:{SOURCE}|{'|'.join(sorted(OTHER_ROOTS))})(?:/[\w-]+)+)(?![\w/.-]|/)")
BACKTICKS = re.compile(r"(?<!`)(`{1,2})(?!`)([^`\n]+)\1(?!`)")
WORD = re.compile(r"(?<![\w-])[A-Za-z_]\w*(?![\w-])")
IMPORT = re.compile(r"\bfrom (metricshuffle[\w.]*) import (\w+(?: *, *\w+)*)(?! as )")
EXPRESSION = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'|\|\s*\w+")


def looks_like_code(word: str) -> bool:
    """Whether a word in a sentence can only be an identifier: it has an underscore or a capital inside."""
    return "_" in word.strip("_") or word.startswith("_") or (word[:1].isupper() and any(letter.isupper() for letter in word[1:]))


class Prose:
    """What the map does to text."""

    def __init__(self, library: Library) -> None:
        self.library = library

    @cached_property
    def tails(self) -> dict[str, set[str]]:
        """The last parts of a dotted module name, of each length -> the modules that end so."""
        found: dict[str, set[str]] = {}
        for module in self.library.new_modules:
            parts = module.split(".")
            for count in range(1, len(parts)):
                found.setdefault(".".join(parts[count:]), set()).add(module)
        return found

    @cached_property
    def file_tails(self) -> dict[str, set[str]]:
        """The last parts of a path, at least two -> the files that end so."""
        found: dict[str, set[str]] = {}
        for path in self.library.paths:
            parts = path.split("/")
            for count in range(1, len(parts) - 1):
                found.setdefault("/".join(parts[count:]), set()).add(path)
        return found

    def dotted_name(self, name: str, whole_only: bool = False) -> str:
        """A dotted name of this tree, from the package on, from a part of it on, or from any module on."""
        parts = name.split(".")
        if parts[0] == PACKAGE or parts[0] in OTHER_ROOTS:
            return self._full(parts)
        if whole_only:
            return name
        full = self._full([PACKAGE, *parts])
        if self.library.is_module(f"{PACKAGE}.{parts[0]}") and full != f"{PACKAGE}.{name}":
            return full.removeprefix(PACKAGE + ".")
        for count in range(len(parts), 0, -1):
            owners = self.tails.get(".".join(parts[:count]), set())
            if count < len(parts):
                owners = {owner for owner in owners if self._offers(owner, parts[count])}
            if len(owners) == 1:
                owner = owners.pop()
                if self.library.new_modules[owner] == owner and count == len(parts):
                    return name
                new = self.library.new_modules[owner].split(".")
                kept = new if new[:-count] != owner.split(".")[:-count] and count > 1 else new[-count:]
                shown = ".".join(kept).removeprefix(PACKAGE + ".")
                return ".".join([shown, *self._members(owner, parts[count:])])
        return name

    def _offers(self, module: str, name: str) -> bool:
        path = self.library.modules.get(module)
        return path is not None and name in self.library.files[path].scopes.top.bound

    def _members(self, module: str, names: list[str]) -> list[str]:
        first = [self.library.new_name(module, names[0])] if names else []
        return first + [self.library.renames.names.get(name, name) for name in names[1:]]

    def _full(self, parts: list[str]) -> str:
        for count in range(len(parts), 0, -1):
            module = ".".join(parts[:count])
            if self.library.is_module(module):
                return ".".join([self.library.new_modules[module], *self._members(module, parts[count:])])
        return ".".join(parts)

    def file_path(self, path: str) -> str:
        """A path of this tree, from the root on, from the package on, or its last parts if only one file has them."""
        targets = self.library.moves.paths
        if path in targets:
            return targets[path]
        below = f"{SOURCE}/{path}"
        if below in targets:
            return targets[below].removeprefix(SOURCE + "/")
        if below.removesuffix("i") in targets:
            return targets[below.removesuffix("i")].removeprefix(SOURCE + "/") + "i"
        owners = self.file_tails.get(path, set())
        if len(owners) != 1:
            return path
        owner = next(iter(owners))
        new = targets.get(owner, owner)
        if new == owner:
            return path
        before = owner.removesuffix(path)
        return new.removeprefix(before) if new.startswith(before) else new.removeprefix(SOURCE + "/")

    def folder(self, path: str) -> str:
        parts = tuple(path.split("/"))
        for count in range(len(parts), 0, -1):
            if parts[:count] in self.library.renames.modules:
                return "/".join(self.library.renames.modules[parts[:count]] + parts[count:])
        return path

    def paths(self, text: str, whole_only: bool) -> str:
        """Dotted names and paths; with `whole_only` those from the package or the root on."""
        text = DOTTED.sub(lambda match: self.dotted_name(match[1], whole_only), text)
        text = FOLDER.sub(lambda match: self.folder(match[1]), text)
        return FILE.sub(
            lambda match: match[1] if whole_only and match[1] not in self.library.moves.paths else self.file_path(match[1]), text
        )

    def code_text(self, text: str) -> str:
        """A string of a program: full paths only; names that it imports keep the name that the rest of the string knows."""

        def imported(match: re.Match[str]) -> str:
            module, names = match[1], re.split(r"\s*,\s*", match[2].strip())
            if not self.library.is_module(module):
                return match[0]
            parts = [(self.library.submodule(module, name), name) for name in names]
            inner = [self.library.new_modules[full].rpartition(".") if full else ("", "", "") for full, _ in parts]
            homes = [new[0] or self.library.new_modules[module] for new in inner]
            targets = [new[2] or self.library.new_name(module, name) for new, (_, name) in zip(inner, parts, strict=True)]
            shown = [new if new == old else f"{new} as {old}" for new, old in zip(targets, names, strict=True)]
            grouped = {home: ", ".join(one for one, own in zip(shown, homes, strict=True) if own == home) for home in homes}
            return "; ".join(f"from {home} import {listed}" for home, listed in grouped.items())

        marked = IMPORT.sub(lambda match: imported(match).replace(PACKAGE, "\0"), text)
        return self.paths(marked, whole_only=True).replace("\0", PACKAGE)

    def words(self, text: str, names: Mapping[str, str]) -> str:
        """Identifiers between backticks, and those that no English word looks like."""

        def every(match: re.Match[str]) -> str:
            return names.get(match[0], match[0])

        text = BACKTICKS.sub(lambda match: match[1] + WORD.sub(every, match[2]) + match[1], text)
        return WORD.sub(lambda match: every(match) if looks_like_code(match[0]) else match[0], text)

    def document(self, text: str, names: Mapping[str, str] | None = None) -> str:
        """A comment, a docstring or a page."""
        return self.words(self.paths(text, whole_only=False), self.library.renames.names if names is None else names)

    def template(self, text: str) -> str:
        """A Jinja template: identifiers in its expressions, outside strings and filters."""

        def outside(expression: str) -> str:
            parts, at = [], 0
            for quoted in QUOTED.finditer(expression):
                parts += [self._every(expression[at : quoted.start()]), quoted[0]]
                at = quoted.end()
            return "".join([*parts, self._every(expression[at:])])

        return EXPRESSION.sub(lambda match: outside(match[0]), self.paths(text, whole_only=True))

    def _every(self, text: str) -> str:
        return WORD.sub(lambda match: self.library.renames.names.get(match[0], match[0]), text)
