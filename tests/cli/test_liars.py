"""--max-damage and --liars of `plan` and `simulate`, and what other commands say of lies."""

from __future__ import annotations

import json

from tests.cli.conftest import Terminal

import metricshuffle as ms
from metricshuffle.models import content_digest
from metricshuffle.web.results import load_result

PLAN = (
    "plan --query mean --low 0 --high 100 --unit kcal --distance 10 --epsilon 1 --delta 1e-6 "
    "--users 400"
)


def test_a_limit_leaves_out_what_cannot_keep_it(terminal: Terminal) -> None:
    free = json.loads(terminal.typed(f"{PLAN} --json").stdout)
    damages = [offer["damage"] for offer in free["candidates"]]
    assert all(set(damage) == {"one", "certified"} for damage in damages)
    assert free["task"]["damage"] == {"one": None, "certified": False}
    for options, encoding, protocol in (
        ("--max-damage 0.9", "unary", "polya-shuffle"),
        ("--max-damage 2 --liars 1%", "unary", "geometric-shuffle"),
        ("--max-damage 1.1 --liars 4", "unary", "randomized-response-shuffle"),
    ):
        plan = ms.Plan.from_json(terminal.typed(f"{PLAN} {options} --json").stdout)
        assert (plan.choice.protocol, plan.choice.encoding) == (protocol, encoding)
    text = " ".join(terminal.typed(f"{PLAN} --max-damage 2 --liars 1% --explain").stdout.split())
    assert "One participant who lies can move the answer by at most 0.415 kcal." in text
    assert "4 participants who lie together can move the answer by at most 1.66 kcal." in text
    assert "More exact, but ruled out by --max-damage 2: polya-shuffle, modular" in text
    assert "no limit" in text


def test_an_error_under_a_limit(terminal: Terminal) -> None:
    line = PLAN.replace("--epsilon 1", "--error 0.2")
    plan = ms.Plan.from_json(terminal.typed(f"{line} --max-damage 0.5 --json").stdout)
    assert plan.choice.expected_error <= 0.2
    assert plan.choice.damage is not None
    assert plan.choice.damage.keeps(0.5)


def test_limits_that_cannot_be_kept(terminal: Terminal) -> None:
    sentence = terminal.refused(*PLAN.split(), "--max-damage", "0.2", "--liars", "1%")
    assert "no protocol keeps this target under --max-damage 0.2 and --liars 4" in sentence
    assert "The least by which 4 liars can move the answer is 1.093 kcal" in sentence
    labels = (
        "plan --query histogram --labels a,b --epsilon 1 --delta 1e-6 --users 400 "
        "--protocol k-ary-randomized-response"
    )
    sentence = terminal.refused(*labels.split(), "--max-damage", "0.5")
    assert "For no candidate here it is certified how far one participant who lies" in sentence
    assert "--floor never" not in sentence  # their damage is not certified, either


def test_a_refusal_names_a_floor_only_where_it_helps(terminal: Terminal) -> None:
    """With --floor never, noise by the shuffler is certified and keeps this limit."""
    line = (
        "plan --query histogram --low 0 --high 15 --epsilon 1 --distance 4 --delta 1e-6 "
        "--users 2000 --protocol shuffler-noise --max-damage 1%"
    )
    sentence = terminal.refused(*line.split())
    assert "under --max-damage 0.01" in sentence
    assert "With --floor never it is 0.1001 % (shuffler-noise)" in sentence
    assert terminal.typed(f"{line} --floor never").exit_code == 0
    limited = terminal.refused(*line.split(), "--max-local-epsilon", "20")
    assert "--floor never" not in limited


def test_limits_of_shares_are_fractions_or_percentages(terminal: Terminal) -> None:
    line = (
        "plan --query histogram --labels a,b,c --epsilon 1 --delta 1e-6 --users 400 "
        "--protocol shuffler-noise --floor never --json --max-damage"
    )
    for limit in ("0.26%", "0.0026", " 100%", "1"):
        assert terminal(*line.split(), limit).exit_code == 0
    for limit in ("5", "101%", "0%", "nan", "much", "1_0%"):
        sentence = terminal.refused(*line.split(), limit)
        assert "a fraction, or a percentage like 1%, got" in sentence
    assert "ruled" not in terminal(*line.split(), "0.26%").stdout
    assert "under --max-damage 0.0024" in terminal.refused(*line.split(), "0.24%")
    assert "in kcal, got '1%'" in terminal.refused(*PLAN.split(), "--max-damage", "1%")


def test_bad_limits(terminal: Terminal) -> None:
    for options, words in (
        ("--max-damage -1", "--max-damage must be a finite number > 0"),
        ("--max-damage 0", "--max-damage must be a finite number > 0"),
        ("--max-damage 1 --liars 401", "--liars (401) cannot exceed the number of people (400)"),
        ("--max-damage 1 --liars 0", "--liars must be a whole number >= 1 or a percentage"),
        ("--max-damage 1 --liars 100%", "--liars must be a whole number >= 1 or a percentage"),
        ("--liars 3", "Give --max-damage, or leave it out."),
    ):
        assert words in terminal.refused(*PLAN.split(), *options.split())


def test_other_commands_say_it(terminal: Terminal) -> None:
    plan = terminal.folder / "plan.json"
    task = terminal.folder / "task.json"
    terminal(*PLAN.split(), "--max-damage", "0.5", "--save", plan, "--task", task)
    sentence = "One participant who lies can move the answer by at most 0.415 kcal."
    assert sentence in " ".join(terminal("verify", task).stdout.split())
    assert json.loads(terminal("verify", task, "--json").stdout)["damage"]["certified"] is True
    assert "can make the result wrong by 0.415 kcal at most." in " ".join(
        terminal("explain", task).stdout.split()
    )
    terminal("report", plan, "--output", terminal.folder / "report.html")
    page = (terminal.folder / "report.html").read_text(encoding="utf-8")
    assert "how far one participant who lies can move the answer" in page
    assert "one liar moves it" in page
    stored = json.loads(task.read_text(encoding="utf-8"))
    stored["damage"]["one"] *= 0.5
    del stored["digest"]
    stored["digest"] = content_digest(stored)
    task.write_text(json.dumps(stored), encoding="utf-8")
    assert "this task claims too little damage" in terminal.refused("verify", task)


def test_simulated_liars(terminal: Terminal) -> None:
    plan = terminal.folder / "plan.json"
    terminal(*PLAN.split(), "--max-damage", "0.5", "--save", plan)
    text = terminal("simulate", plan, "--runs", "20", "--liars", "1%").stdout
    assert "20 releases of real reports, with the worst attack known:" in text
    assert "error with 4 liars" in text
    attack = json.loads(
        terminal("simulate", plan, "--runs", "20", "--liars", "4", "--json").stdout
    )["attack"]
    assert attack["liars"] == 4
    limit = 4 * attack["damage"]["one"]
    assert 0.5 * limit <= attack["excess"] <= limit
    assert attack["error_with"] <= attack["error_without"] + limit
    assert "cannot exceed the number of people" in terminal.refused(
        "simulate", plan, "--liars", "401"
    )


def test_the_page_takes_the_same_limit() -> None:
    typed = {
        "low": "0",
        "high": "100",
        "distance": "10",
        "epsilon": "1",
        "users": "400",
        "honest": "100",
        "encoding": "auto",
        "max_damage": "2",
        "liars": "1%",
    }
    result = load_result("number", typed)
    assert result.plan.choice.protocol == "geometric-shuffle"
    assert ("--liars", "1%") in result.asked.request.to_command()


def test_the_command_prints_them_side_by_side(terminal: Terminal) -> None:
    plan = terminal.folder / "plan.json"
    task = terminal.folder / "task.json"
    terminal.typed(
        "plan --query histogram --labels a,b,c --epsilon 1 --delta 1e-6 --users 300 "
        f"--floor never --save {plan} --task {task}"
    )
    words = ("simulate", plan, "--all-candidates", "--runs", "2")
    result = terminal(*words, "--liars", "1%")
    assert result.exit_code == 0, result.output
    assert "shuffler-noise" in result.stdout
    assert "no limit" in result.stdout
    rows = json.loads(terminal(*words, "--liars", "1%", "--json").stdout)
    assert len(rows) == len(ms.Plan.load(plan).candidates)
    assert all(row["attack"]["liars"] == 3 for row in rows)
    assert "Give a plan, not a task, and --liars" in terminal.refused(*words)
    refused = terminal.refused("simulate", task, "--all-candidates", "--liars", "1%")
    assert "Give a plan, not a task" in refused
