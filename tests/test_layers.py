"""Imports point down the layers and are acyclic; limits on files and functions."""

from __future__ import annotations

import ast
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import metricshuffle
import metricshuffle_papers
from metricshuffle._lazy_exports import export_locations

SOURCE = Path(metricshuffle.__file__).parent
ROOT = SOURCE.parents[1]


def layers() -> dict[str, int]:
    """The layer of each part of the package, from the table in CONTRIBUTING.md."""
    rows = [
        line.split("|")
        for line in (ROOT / "CONTRIBUTING.md").read_text().splitlines()
        if line.startswith("|")
    ]
    return {
        name.strip(" `"): int(row[1])
        for row in rows
        if row[1].strip().isdigit()
        for name in row[2].split(",")
    }


LAYERS = layers()

PURE = {
    "errors",
    "models",
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
            yield from (
                (node.lineno, name.name)
                for name in node.names
                if name.name.split(".")[0] == "metricshuffle"
            )
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                base = module.split(".")[: len(module.split(".")) - node.level + is_package]
                source = ".".join([*base, *([node.module] if node.module else [])])
            if source.split(".")[0] == "metricshuffle":
                inner = (
                    [f"{source}.{name.name}" for name in node.names]
                    if source == "metricshuffle"
                    else [source]
                )
                yield from (
                    (node.lineno, name if part_of(name) in LAYERS else source) for name in inner
                )


FILES = sorted(path for path in SOURCE.rglob("*.py"))
BESIDE = (Path(metricshuffle_papers.__file__).parent, SOURCE.parents[1] / "examples" / "demo")
"""What imports the package and lies outside it."""
READ = [
    *((path, SOURCE.parent) for path in FILES),
    *((path, folder.parent) for folder in BESIDE for path in sorted(folder.rglob("*.py"))),
]
"""Every file that people read, with the folder that its name starts in."""
MOST_LINES = 600
LONGEST_FUNCTION = 100
LONG_FILES: dict[str, str] = {}
"""Files that may be longer, each with its reason."""
LONG_FUNCTIONS = {
    "metricshuffle_papers/cli/users_compare.py:compare": (
        "a command, whose options are its parameters"
    ),
    "metricshuffle/cli/serve_command.py:serve": "a command, whose options are its parameters",
    "metricshuffle/cli/plan_command.py:plan": "a command, whose options are its parameters",
    "metricshuffle/cli/audit_command.py:audit": "a command, whose options are its parameters",
    "metricshuffle/cli/profile_command.py:profile": "a command, whose options are its parameters",
    "metricshuffle/cli/users_commands.py:calibrate": "a command, whose options are its parameters",
    "metricshuffle/web/card_fields.py:target_fields": "a table of fields",
    "metricshuffle/web/engineer_results.py:solve_html": "what a page shows, part by part",
    "metricshuffle/estimation/least_squares.py:nearest_shares": "half of it is its statement",
    "metricshuffle/accounting/shuffling/_binary_kernels.py:divergence": "one compiled loop",
}
"""Functions that may be longer, as file:function, each with its reason."""


def module_of(path: Path) -> str:
    """The dotted name of a file; a package is its __init__.py."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(["metricshuffle", *(parts[:-1] if path.name == "__init__.py" else parts)])


def without_type_checking(tree: ast.Module) -> ast.Module:
    """The same file without what only type checkers import."""

    class Leaves(ast.NodeTransformer):
        def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
            test = node.test
            named = (
                test.id
                if isinstance(test, ast.Name)
                else test.attr
                if isinstance(test, ast.Attribute)
                else ""
            )
            return node.orelse if named == "TYPE_CHECKING" else self.generic_visit(node)

    left = Leaves().visit(tree)
    assert isinstance(left, ast.Module)
    return left


def import_graph() -> dict[str, set[str]]:
    """Imports of each module, anywhere in its file.

    A name of a lazy package counts as an import of its module.
    """
    modules = {module_of(path): path for path in FILES}
    lazy = {
        module: export_locations(str(path))
        for module, path in modules.items()
        if path.with_suffix(".pyi").exists()
    }
    graph: dict[str, set[str]] = {}
    for module, path in modules.items():
        edges: set[str] = set()
        for node in ast.walk(without_type_checking(ast.parse(path.read_text()))):
            if isinstance(node, ast.Import):
                edges |= {alias.name for alias in node.names if alias.name in modules}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module in modules:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    edges.add(
                        inner
                        if inner in modules
                        else lazy.get(str(node.module), {}).get(alias.name, str(node.module))
                    )
        graph[module] = {edge for edge in edges if edge in modules} - {module}
    return graph


@pytest.mark.thorough
def test_nothing_is_imported_in_a_circle() -> None:
    """Not even inside functions: a circle that a late import hides is one all the same."""
    try:
        graphlib.TopologicalSorter(import_graph()).prepare()
    except graphlib.CycleError as circle:
        raise AssertionError(" -> ".join(reversed(circle.args[1]))) from None


@pytest.mark.thorough
def test_the_graph_sees_late_imports_and_not_those_of_type_checkers() -> None:
    """Finds a cycle of two with imports anywhere; the package's graph covers all modules."""
    with pytest.raises(graphlib.CycleError):
        graphlib.TopologicalSorter({"a": {"b"}, "b": {"a"}}).prepare()
    text = (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import "
        "metricshuffle.cli\nelse:\n    import metricshuffle.tasks\n"
    )
    left = [
        alias.name
        for node in ast.walk(without_type_checking(ast.parse(text)))
        if isinstance(node, ast.Import)
        for alias in node.names
    ]
    assert left == ["metricshuffle.tasks"]
    graph = import_graph()
    assert "metricshuffle.planning.plan" in graph["metricshuffle.planning"]
    assert sum(map(len, graph.values())) > 500
    assert not [path for path in FILES if "from ." in path.read_text()], (
        "relative imports are not followed"
    )


def test_files_and_functions_can_be_read_at_a_glance() -> None:
    """A file has at most 600 lines of 100 columns, and a function 100."""
    long = []
    for path, above in READ:
        name = str(path.relative_to(above))
        text = path.read_text()
        if name not in LONG_FILES and len(text.splitlines()) > MOST_LINES:
            long.append(f"{name} has {len(text.splitlines())} lines")
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                and f"{name}:{node.name}" not in LONG_FUNCTIONS
            ):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > LONGEST_FUNCTION:
                    long.append(f"{name}: {node.name} has {lines} lines")
    assert not long, long


def test_imports_point_down() -> None:
    upwards = []
    for path in FILES:
        module = module_of(path)
        own = part_of(module)
        assert own in LAYERS, f"{own} has no layer; give it one in CONTRIBUTING.md"
        for line, name in imported(ast.parse(path.read_text()), module, path.name == "__init__.py"):
            other = part_of(name)
            if other != own and not LAYERS[other] < LAYERS[own]:
                upwards.append(
                    f"{path.name}:{line} imports {name}: layer {LAYERS[other]} from layer "
                    f"{LAYERS[own]}"
                )
    assert not upwards, upwards


def test_the_table_has_every_part_once() -> None:
    parts = {
        path.stem if path.suffix == ".py" else path.name
        for path in SOURCE.iterdir()
        if path.suffix == ".py" or list(path.glob("*.py"))
    }
    assert set(LAYERS) == parts


def test_the_package_imports_nothing_that_lies_beside_it() -> None:
    """Neither the papers nor the demo, not even by `import_module`.

    One file lists where names moved to.
    """
    beside = re.compile(r"\bmetricshuffle_papers\b|\bexamples\.demo\b")
    assert [str(path.relative_to(SOURCE)) for path in FILES if beside.search(path.read_text())] == [
        "_old_names.py"
    ]


def test_the_lower_layers_neither_print_nor_read_nor_use_a_global_random_state() -> None:
    impure = []
    for path in (
        path for path in FILES if path.relative_to(SOURCE).with_suffix("").parts[0] in PURE
    ):
        for node in ast.walk(ast.parse(path.read_text())):
            where = f"{path.relative_to(SOURCE)}:{getattr(node, 'lineno', 0)}"
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in {"print", "open", "input"}
            ):
                impure.append(f"{where} calls {node.func.id}")
            elif (
                isinstance(node, ast.Attribute)
                and node.attr == "random"
                and isinstance(node.value, ast.Name)
            ):
                impure += [f"{where} uses numpy.random"] * (node.value.id in {"np", "numpy"})
            elif isinstance(node, ast.Import) and {
                name.name.split(".")[0] for name in node.names
            } & {"random", "secrets", "logging"}:
                impure.append(f"{where} imports a module that draws or logs")
    assert not impure, impure


def test_an_import_inside_a_function_and_a_relative_one_are_seen() -> None:
    text = (
        "def f():\n    from metricshuffle.planning import plan\n    from ..cli import main\n   "
        " import metricshuffle.web\n"
    )
    names = [
        name for _, name in imported(ast.parse(text), "metricshuffle.noise.polya", is_package=False)
    ]
    assert names == ["metricshuffle.planning", "metricshuffle.cli", "metricshuffle.web"]
