"""profile and plan print the library's numbers; help is fast and complete."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import typer
from tools.reference import every_command, reference

from metricshuffle import __version__
from metricshuffle.accounting.composition.composed_profile import compose_rounds
from metricshuffle.accounting.sums.additive_noise import AdditiveNoise
from metricshuffle.cli.command_group import app
from metricshuffle.noise.polya import Polya

GROUP: Any = typer.main.get_command(app)


def answer(terminal: Any, *words: str) -> dict[str, Any]:
    result = terminal("profile", *words, "--json")
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    assert set(document) == {"epsilon", "delta", "distance", "bound"}
    return document


@pytest.mark.parametrize(
    ("words", "shape"),
    [
        ("--noise geometric --users 100", Fraction(100)),
        ("--noise geometric --users 100 --honest 60", Fraction(60)),
        ("--noise geometric --users 100 --honest 60 --trust colluding", Fraction(1)),
        ("--noise polya --users 100", Fraction(1)),
        ("--noise polya --users 100 --honest 50%", Fraction(1, 2)),
        ("--noise polya --users 100 --honest 0.9 --shape 10/3", Fraction(3)),
        ("--noise polya --users 100 --shape 2.5 --trust colluding", Fraction(1, 40)),
    ],
)
def test_profile_accounts_the_stated_shape(terminal: Any, words: str, shape: Fraction) -> None:
    curve = AdditiveNoise(Polya(shape, 0.3))
    base = [*words.split(), "--rate", "0.3", "--distance", "4"]
    assert answer(terminal, *base, "--delta", "1e-5") == {
        "epsilon": curve.epsilon(1e-5, 4),
        "delta": 1e-5,
        "distance": 4,
        "bound": "exact",
    }
    assert answer(terminal, *base, "--epsilon", "0.25") == {
        "epsilon": 0.25,
        "delta": curve.delta(0.25, 4),
        "distance": 4,
        "bound": "exact",
    }
    assert answer(terminal, *base, "--delta", "0") == {
        "epsilon": curve.pure(4),
        "delta": 0.0,
        "distance": 4,
        "bound": "pure",
    }


def test_profile_over_rounds(terminal: Any) -> None:
    result = terminal.typed(
        "profile --noise geometric --users 50 --rate 0.3 --distance 2 --epsilon 1 --rounds 3 --json"
    )
    document = json.loads(result.stdout)
    assert document["bound"] == "composed"
    assert document["delta"] == compose_rounds(AdditiveNoise(Polya(Fraction(50), 0.3)), 3).delta(
        1.0, 2
    )


def test_profile_in_words(terminal: Any) -> None:
    result = terminal.typed("profile --noise polya --users 100 --rate 0.5 --distance 4 --delta 0")
    assert (
        result.stdout
        == "A total move of 4 steps is hidden at epsilon 2, delta 0 (pure bound), if the "
        "shuffler is honest.\n"
    )


def test_plan_in_words_and_for_an_error(terminal: Any) -> None:
    words = (
        "plan --query sum --low 0 --high 20 --unit kcal --error 10 --distance 5 --delta 1e-6 "
        "--users 100 --encoding modular"
    )
    result = terminal.typed(
        words, "--explain", "--save", "plan.json", "--question", "How much did you eat?"
    )
    assert result.exit_code == 0, result.output
    made = json.loads(Path("plan.json").read_text())
    chosen = made["candidates"][made["chosen"]]
    assert 9.9 < chosen["expected_error"] <= 10.0
    # E|Z| = 1/sinh(epsilon/5) for noise of total shape 1.
    assert made["target"]["epsilon"] == pytest.approx(0.4992, rel=2e-3)
    assert "->  polya-shuffle" in result.stdout
    assert "(geometric-central)" in result.stdout
    assert "NOT promised to be hidden" in result.stdout
    assert "Hidden at epsilon 0.4" in result.stdout
    assert result.stderr == "Wrote plan.json.\n"


def test_real_numbers_negative_bounds_flat_and_aggregator(terminal: Any) -> None:
    base = (
        "plan --distance 1 --delta 1e-6 --users 100 --epsilon 1 --json --encoding modular "
        "--transport aggregator"
    )
    real = json.loads(
        terminal.typed(
            f"{base} --query mean --low -2.5 --high 2.5 --granularity 0.5 --max-bits 40"
        ).stdout
    )
    assert real["query"]["domain"] == {"kind": "interval", "low": -2.5, "high": 2.5, "unit": ""}
    assert real["candidates"][real["chosen"]]["guarantee"]["trust"]["trusted"] == "aggregator"
    flat = json.loads(terminal.typed(f"{base} --query sum --low -5 --high 1e1 --flat").stdout)
    assert flat["query"]["domain"] == {"kind": "integers", "low": -5, "high": 10, "unit": ""}
    assert flat["target"]["shape"] == "flat"


def test_pure_plans_are_made_with_delta_0(terminal: Any) -> None:
    made = json.loads(
        terminal.typed(
            "plan --query sum --low 0 --high 20 --epsilon 1 --distance 5 --delta 0 --users "
            "100 --json"
        ).stdout
    )
    assert made["candidates"][made["chosen"]]["protocol"] == "geometric-local"


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_the_terminal(terminal: Any, width: int, centroid_plan: Any) -> None:
    from rich.console import Console

    from metricshuffle.cli.candidate_table import candidate_table
    from metricshuffle.planning.candidate import Candidate

    longest: Candidate = centroid_plan.choice.model_copy(
        update={"shape": 10_000, "bits_per_user": 123_456, "expected_error": 0.00031234}
    )
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(
        candidate_table(
            centroid_plan.model_copy(update={"candidates": (longest,) * 3, "chosen": 1})
        )
    )
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= width
    assert (
        sum("polya-shuffle" in line and "0.0003123" in line and "123,456" in line for line in lines)
        == 3
    )
    assert "…" not in "".join(lines)


def test_help_does_not_wait_for_numpy() -> None:
    code = (
        "import sys; from metricshuffle.cli.command_group import app; print([m for m in "
        "('numpy', 'scipy', 'numba', "
        "'pydantic') if m in sys.modules])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert "numpy" not in loaded
    assert "scipy" not in loaded


def test_version_and_bare_call(terminal: Any) -> None:
    assert terminal("--version").stdout == f"metricshuffle {__version__}\n"
    assert "randomize" in terminal().stdout


def test_every_command_and_option_is_documented() -> None:
    page = reference()
    commands = dict(every_command(GROUP))
    assert set(commands) == {
        "new",
        "plan",
        "migrate",
        "mix",
        "collection database",
        "collection lease",
        "explain",
        "verify",
        "profile",
        "solve",
        "randomize",
        "shuffle",
        "estimate",
        "run",
        "budget",
        "map",
        "report",
        "simulate",
        "audit",
        "amplify",
        "doctor",
        "demo",
        "reproduce",
        "serve",
        "submit",
        "collect",
        "join-page",
        "issuer new",
        "issuer serve",
        "web",
        "analyst key",
        "collection open",
        "collection status",
        "collection abort",
        "collection purge",
        "collection clock",
        "conform vectors",
        "conform server",
        "conform client",
        "users calibrate",
        "users compare",
    }
    for name, command in commands.items():
        assert command.help, name
        assert "--json" in {option for parameter in command.params for option in parameter.opts}
        for parameter in command.params:
            assert parameter.help, f"{name} {parameter.name}"
            written = (
                parameter.opts[0] if parameter.param_type_name == "option" else parameter.metavar
            )
            assert f"| `{written}" in page


def test_the_reference_is_up_to_date_and_does_not_depend_on_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = reference()
    monkeypatch.setenv("COLUMNS", "40")
    assert reference() == first
    assert (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8") == first, (
        "run make docs"
    )
