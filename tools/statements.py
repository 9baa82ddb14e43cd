"""Table of all statements in docs/theorems.md: paper, conditions, status and test."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from metricshuffle.citations import Statement

_HEADING = r"(?:Statement|Conditions|Numerics|Reference|Proof|Corollary|Reach)"
AS_PUBLISHED = "as published only"
OUR_OWN = (
    "metricshuffle_papers.packing.",
    "metricshuffle_papers.compare.",
    "metricshuffle_papers.enhancing_metric_privacy.correlated_noise.",
)
"""Modules of the papers distribution that are not published formulas."""
TESTS = ("tests", "packages/papers/tests")


def conditions(statement: Statement) -> str:
    """First sentence after "Conditions:"; empty if the statement has none."""
    text = " ".join(inspect.cleandoc(statement.text).split())
    condition = re.search(rf"\bConditions: (.*?)(?=\s{_HEADING}:|$)", text)
    return (
        re.split(r"(?<=[^\s.])\.(?=\s|$)", condition.group(1), maxsplit=1)[0].strip(" .")
        if condition
        else ""
    )


def status(statement: Statement) -> str:
    """Status of a statement: sound, or as published only, with our verdict.

    A published formula cannot become a guarantee, even if true.
    """
    if not statement.function.startswith("metricshuffle_papers.") or statement.function.startswith(
        OUR_OWN
    ):
        below = any(
            words in f"{statement.function} {statement.label}"
            for words in ("lower bound", "from below", "lower_bounds", "pem_lower")
        )
        return "sound, a lower bound" if below else "sound"
    return f"{AS_PUBLISHED}: {statement.label.rpartition(': ')[2]}"


def all_tests(root: Path) -> dict[str, str]:
    """Text of every test file by path; empty outside the repository."""
    files = [path for folder in TESTS for path in sorted((root / folder).rglob("test_*.py"))]
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in files}


def nearest_test(statement: Statement, tests: Mapping[str, str]) -> str:
    """Test file that mentions the function and its module.

    Preferably the one named after the module, else a similar one.
    """
    *module, name = statement.function.split(".")
    owner = module.pop() if module[-1][:1].isupper() else ""
    words = [word for word in (name, owner or module[-1]) if word]
    naming = [
        path
        for path, text in tests.items()
        if all(re.search(rf"\b{re.escape(word)}\b", text) for word in words)
    ]

    def nearness(path: str) -> tuple[bool, bool, bool, str]:
        about = Path(path).stem.removeprefix("test_")
        return about != module[-1], about not in module[-1], module[1] not in path.split("/"), path

    return min(naming, key=nearness, default="")


def table(statements: Iterable[Statement], tests: Mapping[str, str]) -> list[str]:
    """Markdown table with one row per statement, in the order given."""
    lines = ["| statement | paper | conditions | status | tested in |", "|---|---|---|---|---|"]
    for statement in statements:
        short = statement.function.removeprefix("metricshuffle.")
        path = nearest_test(statement, tests)
        standing = status(statement)
        label = (
            statement.label.rpartition(": ")[0]
            if standing.startswith(AS_PUBLISHED)
            else statement.label
        )
        label = label.removesuffix(", as published")
        cells = (
            f"{label} (`{short}`)",
            statement.paper,
            conditions(statement),
            standing,
            f"`{path}`" if path else "",
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return lines
