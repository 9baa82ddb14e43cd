"""Imports point down the layers only, also those inside functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import metricshuffle

SOURCE = Path(metricshuffle.__file__).parent
LAYERS = {
    "errors": 0, "exported": 0, "_randomness_kernels": 0, "citations": 0, "files": 0.5, "columns": 0.5, "declared": 0.5, "randomness": 0.5,
    "numerics": 1, "spaces": 1.2, "privacy": 1.5, "noise": 2, "accounting": 3, "randomizers": 4, "encodings": 4, "amplification": 4.5,
    "estimation": 5, "queries": 5.2, "protocols": 5.5, "wire": 6, "planning": 7, "testing": 8, "__init__": 8, "papers": 8.5, "pages": 8.5,
    "cli": 9, "__main__": 10,
}  # fmt: skip
"""As in CONTRIBUTING.md; what the package exports and what helps users to test lies above planning and below the command line."""

PURE = {
    "errors",
    "declared",
    "randomness",
    "citations",
    "spaces",
    "privacy",
    "noise",
    "accounting",
    "randomizers",
    "encodings",
    "protocols",
}
"""No input or output, no prints, no global random state."""


def part_of(module: str) -> str:
    """The part of the package a dotted name belongs to; the package itself is its __init__."""
    return module.split(".")[1] if "." in module else "__init__"


def imported(tree: ast.AST, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of everything imported from this package anywhere in a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names if name.name.split(".")[0] == "metricshuffle")
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                base = module.split(".")[: len(module.split(".")) - node.level + is_package]
                source = ".".join([*base, *([node.module] if node.module else [])])
            if source.split(".")[0] == "metricshuffle":
                inner = [f"{source}.{name.name}" for name in node.names] if source == "metricshuffle" else [source]
                yield from ((node.lineno, name if part_of(name) in LAYERS else source) for name in inner)


FILES = sorted(path for path in SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_down(path: Path) -> None:
    relative = path.relative_to(SOURCE).with_suffix("")
    is_package = path.name == "__init__.py"
    module = ".".join(["metricshuffle", *(relative.parts[:-1] if is_package else relative.parts)])
    own = part_of(module)
    assert own in LAYERS, f"{own} has no layer; give it one here and in CONTRIBUTING.md"
    for line, name in imported(ast.parse(path.read_text()), module, is_package):
        other = part_of(name)
        allowed = (
            other == own or LAYERS[other] < LAYERS[own] or {own, other} == {"pages", "papers"}
        )  # papers draw with the charts, and a page shows what they reproduce
        assert allowed, f"{path.name}:{line} imports {name}: layer {LAYERS[other]} from layer {LAYERS[own]}"


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.relative_to(SOURCE).with_suffix("").parts[0] in PURE], ids=lambda path: path.name
)
def test_the_lower_layers_neither_print_nor_read_nor_use_a_global_random_state(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"print", "open", "input"}, f"{path.name}:{node.lineno} calls {node.func.id}"
        if isinstance(node, ast.Attribute) and node.attr == "random":
            assert not (isinstance(node.value, ast.Name) and node.value.id in {"np", "numpy"}), (
                f"{path.name}:{node.lineno} uses numpy.random"
            )
        if isinstance(node, ast.Import):
            assert not {name.name.split(".")[0] for name in node.names} & {"random", "secrets", "logging"}, f"{path.name}:{node.lineno}"


def test_an_import_inside_a_function_and_a_relative_one_are_seen() -> None:
    text = "def f():\n    from metricshuffle.planning import plan\n    from ..cli import main\n    import metricshuffle.papers\n"
    found = [name for _, name in imported(ast.parse(text), "metricshuffle.noise.polya", is_package=False)]
    assert found == ["metricshuffle.planning", "metricshuffle.cli", "metricshuffle.papers"]


def test_the_table_in_the_document_is_this_one() -> None:
    text = (SOURCE.parents[1] / "CONTRIBUTING.md").read_text()
    rows = [line.split("|") for line in text.splitlines() if line.startswith("|") and line.split("|")[1].strip().isdigit()]
    told = {name.strip(" `"): int(row[1]) for row in rows for name in row[2].split(",")}
    assert {name: int(LAYERS[name]) for name in told} == told
    assert set(told) == set(LAYERS) - {"_randomness_kernels", "__init__", "__main__", "testing"}
