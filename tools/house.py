"""Count size and naming of the source: `python -m tools.house [FOLDER ...]`.

Prints a table for each folder, or one line of JSON. Only Python files are counted. Code lines are
those with more than comments, docstrings and blanks; tokens are those of `tokenize` without
comments, line ends and indentation.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import tokenize
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

BANNED = frozenset(
    {
        "far",
        "found",
        "given",
        "held",
        "kept",
        "near",
        "one",
        "other",
        "rest",
        "said",
        "told",
        "way",
        "wrong",
    }
)
"""Variable names that do not name their content; see CONTRIBUTING.md.

`other` is allowed as the second operand of a method (`self, other`), as in Python itself.
"""
PRIVATE_WORDS = re.compile(
    r"\b(told|tells? (?:itself|on)|let go|stands? for|whoever|somebody|nobody|everybody|so many|"
    r"of one's own|(?-i:is none|are none)|as it is|she|her|hers|he|his)\b",
    re.IGNORECASE,
)
"""Phrases that a newcomer reads twice."""
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
Functions = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class House:
    """Counts over all files that were added."""

    counts: Counter[str] = field(default_factory=Counter)
    classes: Counter[str] = field(default_factory=Counter)
    stems: Counter[str] = field(default_factory=Counter)

    def add(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        if path.stem not in ("__init__", "__main__"):
            self.stems[path.stem] += 1
        self.counts["files"] += 1
        self.counts["lines"] += len(text.splitlines())
        self._add_tokens(text, tree)
        operands: set[ast.AST] = set()
        for node in ast.walk(tree):
            if isinstance(node, Functions):
                self.counts["functions"] += 1
                operands |= _operands(node)
            elif isinstance(node, ast.ClassDef):
                self.counts["classes"] += 1
                self.classes[node.name] += 1
            elif isinstance(node, ast.Name) and node.id == "Any":
                self.counts["uses of Any"] += 1
            if node not in operands and _bound_name(node) in BANNED:
                self.counts["banned variables, bound"] += 1

        self._add_docstrings(tree)

    def _add_docstrings(self, tree: ast.Module) -> None:
        """Count summaries longer than a line, and private words."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | Functions) and (
                docstring := ast.get_docstring(node)
            ):
                second_line = docstring.split("\n", 2)[1:2]
                self.counts["summaries over a line"] += bool("".join(second_line).strip())
                self.counts["private words in docstrings"] += len(PRIVATE_WORDS.findall(docstring))

    def _add_tokens(self, text: str, tree: ast.Module) -> None:
        documented = _docstring_lines(tree)
        code: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in LAYOUT:
                continue
            self.counts["tokens"] += 1
            self.counts["banned variables, tokens"] += (
                token.type == tokenize.NAME and token.string in BANNED
            )
            code.update(range(token.start[0], token.end[0] + 1))
        self.counts["code lines"] += len(code - documented)
        self.counts["docstring lines"] += len(documented)

    def table(self) -> dict[str, int]:
        """Every count by its name; a name shared by three modules counts once."""
        names = (
            "files",
            "lines",
            "code lines",
            "docstring lines",
            "tokens",
            "functions",
            "classes",
        )
        return {
            **{name: self.counts[name] for name in names},
            "class names in several places": sum(count > 1 for count in self.classes.values()),
            "module names in several places": sum(count > 1 for count in self.stems.values()),
            "banned variables, bound": self.counts["banned variables, bound"],
            "banned variables, tokens": self.counts["banned variables, tokens"],
            **{
                name: self.counts[name]
                for name in ("uses of Any", "summaries over a line", "private words in docstrings")
            },
        }


def _bound_name(node: ast.AST) -> str:
    """Name that a node binds: an assigned variable, or a parameter."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    if isinstance(node, ast.ExceptHandler):
        return node.name or ""
    return node.arg if isinstance(node, ast.arg) else ""


def _operands(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[ast.AST]:
    """The parameter `other` of a method that compares or merges two objects."""
    names = [argument.arg for argument in function.args.args[:2]]
    return {function.args.args[1]} if names == ["self", "other"] else set()


def _docstring_lines(tree: ast.Module) -> set[int]:
    """Lines of docstrings, including those below constants and fields."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def measured(folder: Path) -> dict[str, int]:
    """Table of all Python files below a folder."""
    house = House()
    for path in sorted(folder.rglob("*.py")):
        house.add(path)
    return house.table()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.house", description=__doc__)
    parser.add_argument(
        "folders", nargs="*", type=Path, default=[Path("src"), Path("tests"), Path("tools")]
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document instead of a table"
    )
    options = parser.parse_args()
    tables = {str(folder): measured(folder) for folder in options.folders}
    if options.json:
        print(json.dumps(tables, indent=2))
        return
    print(f"{'':32}" + "".join(f"{name:>12}" for name in tables))
    for row in next(iter(tables.values()), {}):
        print(f"{row:32}" + "".join(f"{table[row]:>12,}" for table in tables.values()))


if __name__ == "__main__":
    main()
