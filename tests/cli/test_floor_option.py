"""--floor always|auto|never and --no-floor of the command plan."""

from __future__ import annotations

import json

from tests.cli.conftest import Terminal

PLAN = (
    "plan --query histogram --low 0 --high 15 --distance 4 --epsilon 1 --delta 1e-6 --users 5000 "
    "--protocol noisy-vectors"
)


def test_the_option_and_the_older_one(terminal: Terminal) -> None:
    texts = {
        options: terminal.typed(f"{PLAN} {options}".rstrip()).stdout
        for options in ("", "--floor always", "--floor auto", "--floor never", "--no-floor")
    }
    assert texts[""] == texts["--floor always"]
    assert texts["--floor never"] == texts["--no-floor"]
    words = " ".join(texts[""].split())
    assert "; --floor auto leaves it out where it costs more than 1.5 times, and then" in words
    assert "There is no floor, because a floor of 10 would" in " ".join(
        texts["--floor auto"].split()
    )
    stored = json.loads(terminal.typed(f"{PLAN} --floor auto --json").stdout)
    assert stored["floor_price"]["left_out"] is True


def test_wrong_and_contradictory_words(terminal: Terminal) -> None:
    sentence = terminal.refused(*PLAN.split(), "--floor", "sometimes")
    assert "--floor" in sentence
    assert "never" in sentence
    sentence = terminal.refused(*PLAN.split(), "--floor", "auto", "--no-floor")
    assert "--no-floor means --floor never" in sentence
    mean = PLAN.replace("histogram", "mean").replace(" --protocol noisy-vectors", "")
    sentence = terminal.refused(*mean.split(), "--floor", "auto")
    assert "--floor does not apply to a mean" in sentence
