"""The table at the head of docs/theorems.md."""

from __future__ import annotations

from pathlib import Path

from tools.documents import theorems
from tools.statements import OUR_OWN, all_tests, conditions, nearest_test, status, table

from metricshuffle.citations import STATEMENTS, Statement

TEXT = """Something.

Statement: x.
Conditions: rate in (0, 1.5], that is
    more than nothing. Or else. Numerics: floats. Reference: here.
"""


def statement(function: str, label: str = "Theorem 1", text: str = TEXT) -> Statement:
    return Statement(
        function if function.startswith("metricshuffle_papers.") else f"metricshuffle.{function}",
        "Wang24",
        label,
        text,
    )


def test_the_first_sentence_of_the_conditions() -> None:
    assert conditions(statement("noise.law.f")) == "rate in (0, 1.5], that is more than nothing"
    assert conditions(statement("noise.law.f", text="No word about them.")) == ""
    assert (
        conditions(statement("noise.law.f", text="Conditions: none.\nReference: here.")) == "none"
    )


def test_published_formulas_are_never_sound() -> None:
    assert (
        status(statement("metricshuffle_papers.x.f", "Theorem 1, as published: loose"))
        == "as published only: loose"
    )
    assert status(statement("accounting.x.f")) == "sound"
    assert status(statement("accounting.lower_bounds.f")) == "sound, a lower bound"
    theorems(Path("nowhere"))  # registers all of them
    verdicts = {
        status(known)
        for known in STATEMENTS.values()
        if known.function.startswith("metricshuffle_papers.")
    }
    published = {
        f"as published only: {verdict}"
        for verdict in ("true", "loose", "false", "false beyond a distance")
    }
    assert verdicts == {*published, "sound"}
    assert {
        known.function.split(".")[1]
        for known in STATEMENTS.values()
        if known.function.startswith(OUR_OWN)
    } == {"packing", "compare", "enhancing_metric_privacy"}


def test_the_test_named_is_the_nearest(tmp_path: Path) -> None:
    for path, text in {
        "tests/accounting/test_z.py": "from x import clones\nclones.delta_upper()",
        "tests/accounting/test_clones.py": "from clones import delta_upper",
        "packages/papers/tests/test_a.py": "clones.delta_upper; blanket.delta_upper",
        "tests/oracles/helper.py": "clones.delta_upper",
        "tests/randomizers/test_b.py": "Duchi().blanket",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    tests = all_tests(tmp_path)
    assert len(tests) == 4
    assert (
        nearest_test(statement("accounting.clones.delta_upper"), tests)
        == "tests/accounting/test_clones.py"
    )
    assert (
        nearest_test(statement("accounting.blanket.delta_upper"), tests)
        == "packages/papers/tests/test_a.py"
    )
    assert (
        nearest_test(statement("randomizers.vectors.Duchi.blanket"), tests)
        == "tests/randomizers/test_b.py"
    )
    assert nearest_test(statement("randomizers.vectors.Harmony.blanket"), tests) == ""
    assert all_tests(tmp_path / "nowhere") == {}


def test_rows_are_rows_of_a_table() -> None:
    published = statement(
        "metricshuffle_papers.x.f", "Theorem 1, as published: false", "Conditions: |x| <= B."
    )
    assert table([published], {})[2:] == [
        "| Theorem 1 (`metricshuffle_papers.x.f`) | Wang24 | \\|x\\| <= B | as published "
        "only: false |  |"
    ]
    document = theorems(Path("nowhere"))
    rows = [line for line in document.splitlines() if line.startswith("| ")]
    assert len(rows) == len(STATEMENTS) + 1
    assert all(line.replace("\\|", "").count("|") == 6 for line in rows)
    assert document == theorems(Path("nowhere"))
