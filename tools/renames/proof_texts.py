"""Whether a text changed by names and paths of the map only."""

from __future__ import annotations

import re
from itertools import product

from tools.renames.library import Library

Tails = dict[tuple[str, ...], set[tuple[str, ...]]]
CHUNK = re.compile(r"[\w./-]+")


class Texts:
    """The changes of texts that the map explains in one file."""

    def __init__(self, library: Library, path: str, tails: Tails) -> None:
        renames = library.renames
        self.strings = {**renames.strings, **renames.file_strings.get(path, {})}
        self.names: dict[str, set[str]] = {}
        scoped = [*renames.in_file.values(), *(names for (file, _), names in renames.in_function.items() if file == path)]
        for names in (renames.names, *scoped):
            for old, new in names.items():
                self.names.setdefault(old, set()).add(new)
        self.tails = tails

    def explains(self, old: str, new: str) -> bool:
        """Whether words and paths of the map are all that differs."""
        if old == new or self.strings.get(old) == new:
            return True
        new = re.sub(r"(\bimport [\w, ]*?\w+) as \w+", r"\1", new) if " as " in new and " as " not in old else new
        old, new = " ".join(old.split()), " ".join(new.split())  # (longer names are wrapped elsewhere)
        if CHUNK.sub("", old) != CHUNK.sub("", new):
            return False
        pairs = zip(CHUNK.findall(old), CHUNK.findall(new), strict=True)
        return all(first == second or self.chunk(first, second) for first, second in pairs)

    def chunk(self, old: str, new: str) -> bool:
        """Whether a dotted name, a path or a word became another one."""
        old, new = old.rstrip("."), new.rstrip(".")
        for mark in "./":
            first, second = old.split(mark), new.split(mark)
            for begin in range(len(first)):
                for end in range(len(first), begin, -1):
                    for target in self.tails.get(tuple(first[begin:end]), ()):
                        if self.parts([*first[:begin], *target, *first[end:]], second):
                            return True
            if self.parts(first, second):
                return True
        return False

    def parts(self, old: list[str], new: list[str]) -> bool:
        return len(old) == len(new) and all(a == b or b in self.names.get(a, ()) for a, b in zip(old, new, strict=True))


def path_tails(library: Library) -> Tails:
    """Last parts of the old paths of modules, folders and files -> last parts of their new paths."""
    pairs = [(tuple(old.split(".")), tuple(new.split("."))) for old, new in library.new_modules.items() if old != new]
    pairs += [(tuple(old.split("/")), tuple(new.split("/"))) for old, new in library.moves.paths.items() if old != new]
    pairs += list(library.renames.modules.items())
    pairs += [(old[:-1], new[:-1]) for old, new in pairs if len(old) > 1 and len(new) > 1]  # `from old_package import module`
    pairs += [((*old[:-1], old[-1].removesuffix(".py")), (*new[:-1], new[-1].removesuffix(".py"))) for old, new in pairs]
    dots = [(tuple(".".join(old).split(".")), tuple(".".join(new).split("."))) for old, new in pairs]
    found: Tails = {}
    for old, new in {*pairs, *dots}:
        for first, second in product(range(len(old)), range(len(new))):
            found.setdefault(old[first:], set()).add(new[second:])
    return found
