"""The generated documents: `python -m metricshuffle.cli.documents --write docs` (or `--check docs`)."""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import metricshuffle


def theorems() -> str:
    """Every registered statement, by paper, with the docstring that proves or cites it."""
    from metricshuffle.citations import PAPERS, STATEMENTS

    for module in walk_packages(metricshuffle.__path__, "metricshuffle."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    lines = [
        "# Statements behind the numbers",
        "",
        "Generated from the code by `make docs`. One function, one statement; a failed condition raises `ConditionError`.",
    ]
    for key, reference in sorted(PAPERS.items(), key=lambda item: (item[0] == "metricshuffle", item[0])):
        mine = sorted((one for one in STATEMENTS.values() if one.paper == key), key=lambda one: one.function)
        if not mine:
            continue
        lines += ["", f"## {reference}"]
        for one in mine:
            lines += ["", f"### {one.label}", "", f"`{one.function}`", "", "```text", inspect.cleandoc(one.text), "```"]
    return "\n".join(lines) + "\n"


def command_line() -> str:
    from metricshuffle.cli.reference import reference

    return reference()


def picture() -> str:
    from metricshuffle.cli.picture import picture_svg

    return picture_svg()


DOCUMENTS: dict[str, Callable[[], str]] = {"theorems.md": theorems, "cli.md": command_line, "picture.svg": picture}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", type=Path, metavar="FOLDER", help="write the documents there")
    action.add_argument("--check", type=Path, metavar="FOLDER", help="fail if one there is not what the code says now")
    arguments = parser.parse_args()
    stale = []
    for name, make in DOCUMENTS.items():
        text = make()
        if arguments.write:
            (arguments.write / name).write_text(text, encoding="utf-8")
        elif not (arguments.check / name).is_file() or (arguments.check / name).read_text(encoding="utf-8") != text:
            stale.append(name)
    if stale:
        print(f"not up to date: {', '.join(stale)}; run `make docs` and commit the result.", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
