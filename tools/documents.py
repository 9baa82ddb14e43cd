"""Generate or check documents: `python -m tools.documents --write .` (or `--check .`)."""

from __future__ import annotations

import argparse
import inspect
import math
import re
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import metricshuffle
import metricshuffle_papers


def theorems(root: Path) -> str:
    """Return every registered statement by paper: a table, and the docstring of each.

    Tests of a statement are searched below `root`.
    """
    from metricshuffle.citations import PAPERS, STATEMENTS
    from tools.statements import all_tests, table

    for package in (metricshuffle, metricshuffle_papers):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                import_module(module.name)
    papers = sorted(PAPERS.items(), key=lambda item: (item[0] == "metricshuffle", item[0]))
    in_order = sorted(STATEMENTS.values(), key=lambda statement: statement.function)
    by_paper = {
        key: [statement for statement in in_order if statement.paper == key] for key, _ in papers
    }
    lines = [
        "# Statements behind the numbers",
        "",
        "Generated from the code by `make docs`. One function, one statement; a failed "
        "condition raises `ConditionError`.",
        '"sound" is what guarantees rest on; lower bounds show how tight they are; "as '
        'published only" is there to be compared with, '
        "with our verdict, and no guarantee can be made of it. The test named mentions the "
        "function; others may use it too.",
        "",
        *table(
            (statement for statements in by_paper.values() for statement in statements),
            all_tests(root),
        ),
    ]
    for key, reference in papers:
        if not by_paper[key]:
            continue
        lines += ["", f"## {reference}"]
        for statement in by_paper[key]:
            lines += [
                "",
                f"### {statement.label}",
                "",
                f"`{statement.function}`",
                "",
                "```text",
                inspect.cleandoc(statement.text),
                "```",
            ]
    return "\n".join(lines) + "\n"


def command_line() -> str:
    from tools.reference import reference

    return reference()


def every_randomizer() -> str:
    from tools.randomizers_page import randomizers_page

    return randomizers_page()


def picture() -> str:
    from tools import picture as drawn

    return drawn.picture()


def names_before() -> str:
    from tools.old_names import changed_names

    return changed_names()


def gallery(folder: Path) -> dict[Path, str]:
    from tools.notebooks import notebooks

    return notebooks(folder)


def what_if() -> str:
    """Table of the page on guarantees: a plan whose assumptions fail one by one."""
    from metricshuffle.numerics.rounding import format_epsilon
    from metricshuffle.report.failure_scenarios import ProtocolReview, consequences

    query = metricshuffle.Mean(metricshuffle.Integers(0, 1000, unit="kcal"))
    target = metricshuffle.Target(epsilon=1.0, delta=1e-6, distance=100)
    plan = metricshuffle.plan(
        query,
        target,
        users=1000,
        honest=0.9,
        encoding="modular",
        protocols=("polya-shuffle", "geometric-shuffle"),
    )
    shown = tuple(
        candidate
        for candidate in plan.candidates
        if candidate.protocol == "geometric-shuffle" or candidate.shape == 1
    )
    lines = [
        f"| | situation | {' | '.join(candidate.protocol for candidate in shown)} |",
        f"|---|---|{'---|' * len(shown)}",
    ]
    for row in consequences(*(ProtocolReview.of(plan, candidate) for candidate in shown)):
        cells = [
            f"epsilon {format_epsilon(epsilon)}"
            if math.isfinite(epsilon)
            else f"no promise (noise alone: {format_epsilon(noise)})"
            for epsilon, noise in zip(row.epsilons, row.noise_alone, strict=True)
        ]
        lines.append(f"| {row.group} | {row.situation} | {' | '.join(cells)} |")
    return "\n".join(lines)


def with_part(text: str, name: str, part: str) -> str:
    """Replace the text between the markers `name`."""
    before, marked = text.split(f"<!-- {name} -->", 1)
    after = marked.split(f"<!-- /{name} -->", 1)[1]
    return f"{before}<!-- {name} -->\n{part}\n<!-- /{name} -->{after}"


def documents(root: Path) -> dict[Path, str]:
    """Expected content of each generated file."""
    guarantee = root / "docs" / "guarantee-details.md"
    return {
        root / "docs" / "theorems.md": theorems(root),
        root / "docs" / "cli.md": command_line(),
        root / "docs" / "randomizers.md": every_randomizer(),
        root / "docs" / "picture.svg": picture(),
        root / "CHANGES-names.md": names_before(),
        **gallery(root / "docs" / "notebooks"),
        guarantee: with_part(guarantee.read_text(encoding="utf-8"), "what-if", what_if()),
    }


NUMBER = re.compile(r"\d+(?:\.\d+)?")
MADE_ID = re.compile(r"(?<=-)[0-9a-f]{8}(?=-)")
"""Identifier of a chart on a page, made of all digits of what it shows."""


def agrees(path: Path, text: str) -> bool:
    """Whether a file agrees with the generated text.

    A number in a notebook may differ by one in its last digit: sums of floating-point numbers, and
    so their rounding, differ between processors.
    """
    if not path.is_file():
        return False
    stored = path.read_text(encoding="utf-8")
    if stored == text or path.suffix != ".ipynb":
        return stored == text
    stored = MADE_ID.sub("", stored)
    text = MADE_ID.sub("", text)
    pairs = zip(NUMBER.findall(stored), NUMBER.findall(text), strict=False)
    return NUMBER.split(stored) == NUMBER.split(text) and all(_nearly(*pair) for pair in pairs)


def _nearly(first: str, second: str) -> bool:
    places = [len(number.partition(".")[2]) for number in (first, second)]
    return first == second or (
        min(places) > 0 and abs(float(first) - float(second)) <= 1.01 * 10.0 ** -min(places)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument(
        "--write", type=Path, metavar="FOLDER", help="write the documents of the repository there"
    )
    action.add_argument(
        "--check",
        type=Path,
        metavar="FOLDER",
        help="fail if one there is not what the code says now",
    )
    arguments = parser.parse_args()
    stale = []
    for path, text in documents(arguments.write or arguments.check).items():
        if arguments.write:
            path.write_text(text, encoding="utf-8")
        elif not agrees(path, text):
            stale.append(path.name)
    if stale:
        print(
            f"not up to date: {', '.join(stale)}; run `make docs` and commit the result.",
            file=sys.stderr,
        )
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
