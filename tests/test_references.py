"""Names in docstrings, comments and "use instead" texts exist: modules, functions, pages."""

from __future__ import annotations

import ast
import importlib
import io
import json
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tests.tables import check_all

import metricshuffle
import metricshuffle_papers
from metricshuffle.cli.plugins import COMMANDS

SOURCE = Path(metricshuffle.__file__).parent
ROOT = SOURCE.parents[1]
PACKAGES = (SOURCE, Path(metricshuffle_papers.__file__).parent)
FILES = [path for package in PACKAGES for path in sorted(package.rglob("*.py"))]
DOTTED = re.compile(r"(?<![\w./@-])([a-z_][a-z_0-9]*(?:\.[A-Za-z_]\w*)+)(?![\w/]|\.(?:py|md)\b)")
PATH = re.compile(r"(?<![\w/.*])([\w./-]+\.(?:py|md))\b")
OTHERS = {
    "ms",
    "np",
    "pa",
    "pl",
    "pd",
    "alt",
    "math",
    "numpy",
    "scipy",
    "pyarrow",
    "spark",
    "datum",
    "rows",
}
"""Names before a dot that are not of this package: libraries, and variables with attributes."""


def below(path: Path) -> Path:
    """A file's path from its package on; as it is, for one of no package."""
    return next(
        (path.relative_to(package.parent) for package in PACKAGES if path.is_relative_to(package)),
        path,
    )


def module_of(path: Path) -> str:
    return ".".join(below(path).with_suffix("").parts).removesuffix(".__init__")


OLD_MODULES = json.loads((SOURCE / "_old_names.json").read_text(encoding="utf-8"))["modules"]
MODULES = [module_of(path) for path in FILES]
PARTS = {name.split(".")[1] for name in MODULES if name.count(".")}
FORMULAS = {
    name.split(".")[-1]
    for name in MODULES
    if name.startswith(("metricshuffle.accounting.", "metricshuffle.amplification."))
}
FORMULAS -= {"law"}  # also a variable in many places


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Strings and comments of a file, with their lines."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def member(owner: Any, name: str) -> Any:
    """An attribute, or a field that only instances have; AttributeError if there is none."""
    fields = {**getattr(owner, "model_fields", {}), **getattr(owner, "__dataclass_fields__", {})}
    return fields[name] if name in fields else getattr(owner, name)


@cache
def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        if ".".join(parts[:count]) in OLD_MODULES:  # (imported with a warning)
            continue
        try:
            owner = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        try:
            for part in parts[count:]:
                owner = member(owner, part)
        except AttributeError:
            return False
        return True
    return False


def known(name: str) -> bool:
    """By its full name, from the package on, or from any module on."""
    first, _, rest = name.partition(".")
    within = [f"{module}.{rest}" for module in MODULES if module.split(".")[-1] == first]
    return name == COMMANDS or any(
        resolves(candidate)
        for candidate in (f"metricshuffle.{name}", f"metricshuffle_papers.{name}", name, *within)
    )


def is_reference(name: str) -> bool:
    """Whether a name starts at a package part, a formula module, or a class: module.Class."""
    first, second = name.split(".")[:2]
    if first == "spark":  # (also the name of Spark's own settings)
        return f"metricshuffle.spark.{second}" in MODULES
    return (
        first in {package.name for package in PACKAGES}
        or first in PARTS | FORMULAS
        or (second[0].isupper() and second != "T" and first not in OTHERS)
    )


def dangling(path: Path) -> list[str]:
    found = []
    for line, text in texts(path):
        for name in DOTTED.findall(text):
            if (
                is_reference(name)
                and not name.endswith(
                    (".py", ".md", ".css", ".js", ".txt", ".jinja", ".html", ".json")
                )
                and not known(name)
            ):
                found.append(f"{below(path)}:{line}: {name}")
        for name in PATH.findall(text):
            places = (ROOT, ROOT / "docs", SOURCE, path.parent, path.parent.parent)
            anywhere = "/" not in name and any(other.name == name for other in FILES)
            if not anywhere and not any((place / name).exists() for place in places):
                found.append(f"{below(path)}:{line}: {name}")
    return found


@check_all("path", FILES)
def test_what_a_file_names_is_there(path: Path) -> None:
    assert dangling(path) == []


def test_what_is_gone_would_be_found(tmp_path: Path) -> None:
    gone = {
        "accounting.shuffled_sum.Clamped": True,
        "shuffled_sum.Clamped": True,
        "accounting.clones.delta_upper": True,
        "shuffling.delta_bracket": True,
        "accounting.sums.additive_noise.Clamped": False,
        "additive_noise.Clamped": False,
        "metricshuffle.randomizers.Channel": False,
        "metricshuffle.randomizers.NoChannel": True,
        "privacy.profile.PureProfile.rate": False,
    }
    for name, missing in gone.items():
        assert is_reference(name)
        assert known(name) is not missing, name


def test_the_citation_is_of_this_version() -> None:
    cited = re.search(
        r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert cited is not None
    assert cited[1].strip("\"'") == metricshuffle.__version__
