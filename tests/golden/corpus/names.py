"""(h) Public names, every `kind` and `format` in a file, and implemented statements."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

from tests.golden.corpus.recording import Items

import metricshuffle
from metricshuffle import randomizers
from metricshuffle.citations import PAPERS, STATEMENTS

SOURCE = Path(metricshuffle.__file__).parent
FORMAT = re.compile(r"metricshuffle-[a-z-]+/\d+")


def _trees() -> Iterator[ast.Module]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield ast.parse(path.read_text(encoding="utf-8"))


def _kinds() -> list[str]:
    """Values of every field `kind` with literal values: `kind: Literal["sum"] = "sum"`."""
    found: set[str] = set()
    for tree in _trees():
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.AnnAssign)
                and isinstance(node.target, ast.Name)
                and node.target.id == "kind"
            ):
                found |= {
                    part.value
                    for part in ast.walk(node.annotation)
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                }
    return sorted(found)


def _formats() -> list[str]:
    """Texts and bytes that name a format and its version."""
    found: set[str] = set()
    for tree in _trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
                text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
                if FORMAT.fullmatch(text.strip()):
                    found.add(text.strip())
    return sorted(found)


def _statements() -> dict[str, int]:
    """Paper and label of every registered formula, and the number of functions for it."""
    for module in walk_packages(metricshuffle.__path__, "metricshuffle."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    own = [
        statement
        for statement in STATEMENTS.values()
        if statement.function.startswith("metricshuffle.")
    ]
    return dict(
        sorted(Counter(f"{statement.paper}: {statement.label}" for statement in own).items())
    )


def record() -> Items:
    return {
        "names of metricshuffle": {"names": sorted(metricshuffle.__all__)},
        "names of metricshuffle.randomizers": {"names": sorted(randomizers.__all__)},
        "kinds": {"names": _kinds()},
        "formats": {"names": _formats()},
        "statements": {"count of functions": _statements()},
        "papers": {"names": sorted(PAPERS)},
    }
