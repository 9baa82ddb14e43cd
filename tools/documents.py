"""The generated documents: `python -m tools.documents --write .` (or `--check .`) in the repository."""

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
    """Every registered statement, by paper: a table, and the docstring that proves or cites each; its tests are looked for below `root`."""
    from metricshuffle.citations import PAPERS, STATEMENTS
    from tools.statements import all_tests, table

    for package in (metricshuffle, metricshuffle_papers):
        for module in walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                import_module(module.name)
    papers = sorted(PAPERS.items(), key=lambda item: (item[0] == "metricshuffle", item[0]))
    in_order = sorted(STATEMENTS.values(), key=lambda statement: statement.function)
    by_paper = {key: [statement for statement in in_order if statement.paper == key] for key, _ in papers}
    lines = [
        "# Statements behind the numbers",
        "",
        "Generated from the code by `make docs`. One function, one statement; a failed condition raises `ConditionError`.",
        '"sound" is what guarantees rest on; lower bounds show how tight they are; "as published only" is there to be compared with, '
        "with our verdict, and no guarantee can be made of it. The test named mentions the function; others may use it too.",
        "",
        *table((statement for statements in by_paper.values() for statement in statements), all_tests(root)),
    ]
    for key, reference in papers:
        if not by_paper[key]:
            continue
        lines += ["", f"## {reference}"]
        for statement in by_paper[key]:
            lines += ["", f"### {statement.label}", "", f"`{statement.function}`", "", "```text", inspect.cleandoc(statement.text), "```"]
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


def gallery(folder: Path) -> dict[Path, str]:
    from tools.notebooks import notebooks

    return notebooks(folder)


def what_if() -> str:
    """The table of the page on guarantees: a plan whose assumptions fail one by one."""
    from metricshuffle.numerics.rounding import format_epsilon
    from metricshuffle.report.failure_scenarios import ProtocolReview, consequences

    query = metricshuffle.Mean(metricshuffle.Integers(0, 1000, unit="kcal"))
    target = metricshuffle.Target(epsilon=1.0, delta=1e-6, distance=100)
    plan = metricshuffle.plan(query, target, users=1000, honest=0.9, encoding="modular", protocols=("polya-shuffle", "geometric-shuffle"))
    shown = tuple(candidate for candidate in plan.candidates if candidate.protocol == "geometric-shuffle" or candidate.shape == 1)
    lines = [f"| | situation | {' | '.join(candidate.protocol for candidate in shown)} |", f"|---|---|{'---|' * len(shown)}"]
    for row in consequences(*(ProtocolReview.of(plan, candidate) for candidate in shown)):
        cells = [
            f"epsilon {format_epsilon(epsilon)}" if math.isfinite(epsilon) else f"no promise (noise alone: {format_epsilon(noise)})"
            for epsilon, noise in zip(row.epsilons, row.noise_alone, strict=True)
        ]
        lines.append(f"| {row.group} | {row.situation} | {' | '.join(cells)} |")
    return "\n".join(lines)


def with_part(text: str, name: str, part: str) -> str:
    """The text with what stands between the markers `name` replaced."""
    before, marked = text.split(f"<!-- {name} -->", 1)
    after = marked.split(f"<!-- /{name} -->", 1)[1]
    return f"{before}<!-- {name} -->\n{part}\n<!-- /{name} -->{after}"


def documents(root: Path) -> dict[Path, str]:
    """What each generated file should say now."""
    guarantee = root / "docs" / "guarantee-details.md"
    return {
        root / "docs" / "theorems.md": theorems(root),
        root / "docs" / "cli.md": command_line(),
        root / "docs" / "randomizers.md": every_randomizer(),
        root / "docs" / "picture.svg": picture(),
        **gallery(root / "docs" / "notebooks"),
        guarantee: with_part(guarantee.read_text(encoding="utf-8"), "what-if", what_if()),
    }


NUMBER = re.compile(r"\d+(?:\.\d+)?")
MADE_ID = re.compile(r"(?<=-)[0-9a-f]{8}(?=-)")
"""What tells two charts of a page apart, made of all digits of what they show."""


def agrees(path: Path, text: str) -> bool:
    """Whether a file is what the code says now. A number that a notebook shows may be off by one of its last digit: sums of floating-point
    numbers differ from processor to processor, and so does what is rounded."""
    if not path.is_file():
        return False
    held = path.read_text(encoding="utf-8")
    if held == text or path.suffix != ".ipynb":
        return held == text
    held, text = MADE_ID.sub("", held), MADE_ID.sub("", text)
    pairs = zip(NUMBER.findall(held), NUMBER.findall(text), strict=False)
    return NUMBER.split(held) == NUMBER.split(text) and all(_nearly(*pair) for pair in pairs)


def _nearly(one: str, other: str) -> bool:
    places = [len(number.partition(".")[2]) for number in (one, other)]
    return one == other or (min(places) > 0 and abs(float(one) - float(other)) <= 1.01 * 10.0 ** -min(places))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", type=Path, metavar="FOLDER", help="write the documents of the repository there")
    action.add_argument("--check", type=Path, metavar="FOLDER", help="fail if one there is not what the code says now")
    arguments = parser.parse_args()
    stale = []
    for path, text in documents(arguments.write or arguments.check).items():
        if arguments.write:
            path.write_text(text, encoding="utf-8")
        elif not agrees(path, text):
            stale.append(path.name)
    if stale:
        print(f"not up to date: {', '.join(stale)}; run `make docs` and commit the result.", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
