"""`metricshuffle amplify --group` and `--dummies`: output and errors."""

from __future__ import annotations

import json

import pytest
from tests.cli.conftest import Terminal

KRR = "amplify --randomizer krr --options 10 --delta 1e-6"


def test_groups_are_told_one_by_one(terminal: Terminal) -> None:
    told = terminal.typed(f"{KRR} --group 50:local-epsilon=1 --group 1e2:local-epsilon=2")
    assert told.exit_code == 0, told.output
    words = " ".join(told.stdout.split())
    assert (
        "of a member of group 1 (k-ary-randomized-response, options 10, epsilon 1, 50 people)"
        in words
    )
    assert "of a member of group 2" in words
    assert "150 shuffled reports of honest people" in words


def test_groups_as_numbers(terminal: Terminal) -> None:
    answer = json.loads(
        terminal.typed(
            f"{KRR} --group 50:local-epsilon=1 --group 0:local-epsilon=3 --group "
            "100:local-epsilon=2 --json"
        ).stdout
    )
    assert [(one["group"], one["people"]) for one in answer["groups"]] == [(1, 50), (3, 100)]
    for one in answer["groups"]:
        assert 0.0 < one["lower"]["epsilon"] <= one["upper"]["epsilon"] < 2.0
        assert one["upper"]["delta"] == 1e-6
    delta = json.loads(
        terminal.typed(
            "amplify --randomizer krr --options 10 --epsilon 0.1 --group "
            "50:local-epsilon=1 --dummies 50 --json"
        ).stdout
    )
    assert 0.0 < delta["groups"][0]["lower"]["delta"] <= delta["groups"][0]["upper"]["delta"] < 1.0


def test_one_group_is_what_users_give(terminal: Terminal) -> None:
    plain = json.loads(terminal.typed(f"{KRR} --local-epsilon 1 --users 60 --json").stdout)
    group = json.loads(terminal.typed(f"{KRR} --group 60:local-epsilon=1 --json").stdout)["groups"][
        0
    ]
    assert {name: group[name] for name in plain} == plain


def test_dummies_help(terminal: Terminal) -> None:
    plain = json.loads(terminal.typed(f"{KRR} --local-epsilon 1 --users 60 --json").stdout)
    more = json.loads(
        terminal.typed(f"{KRR} --local-epsilon 1 --users 60 --dummies 60 --json").stdout
    )["groups"][0]
    assert more["upper"]["epsilon"] < 0.8 * plain["lower"]["epsilon"]


def test_local_epsilons_alone_tell_their_condition(terminal: Terminal) -> None:
    told = terminal.typed(
        "amplify --randomizer generic --epsilon 0.1 --group 50:local-epsilon=1 --group "
        "100:local-epsilon=2"
    )
    words = " ".join(told.stdout.split())
    assert "any randomizer of local epsilon 2, 100 people" in words
    assert "counts on the reports of different groups being alike" in words


def test_a_local_delta(terminal: Terminal) -> None:
    told = terminal.typed(
        "amplify --randomizer generic --local-epsilon 1 --local-delta 1e-13 --users 1e4 "
        "--delta 1e-6"
    )
    assert "one report alone has epsilon 1 at that delta" in " ".join(told.stdout.split())


WRONG = {
    "dummies and nobody": (
        f"{KRR} --local-epsilon 1 --dummies 9",
        ("--dummies needs people", "--users"),
    ),
    "a distance of one group": (
        "amplify --randomizer laplace --low 0 --high 1 --delta 1e-6 --group "
        "9:rate=1,distance=0.3 --group 9:rate=2",
        ("'distance=0.3'", "low, high, rate, steps"),
    ),
    "two counts": (
        f"{KRR} --local-epsilon 1 --users 9 --group 9",
        ("--users", "--group", "leave --users out"),
    ),
    "no count": (f"{KRR} --group many:local-epsilon=1", ("--group many", "whole number")),
    "negative": (f"{KRR} --group -3:local-epsilon=1", ("group 1", "from 0 to")),
    "nobody": (f"{KRR} --group 0:local-epsilon=1", ("members",)),
    "another option": (f"{KRR} --group 9:rate=1", ("'rate=1'", "options, local-epsilon")),
    "no value": (f"{KRR} --group 9:local-epsilon", ("'local-epsilon'", "NAME=VALUE")),
    "no number": (
        f"{KRR} --group 9:local-epsilon=x",
        ("--group 9:local-epsilon=x", "finite number"),
    ),
    "twice": (
        f"{KRR} --local-epsilon 1 --group 9:local-epsilon=2",
        ("local-epsilon is given twice",),
    ),
    "missing": (f"{KRR} --group 9", ("needs --local-epsilon",)),
    "not positive": (f"{KRR} --group 9:local-epsilon=-1", ("greater than 0",)),
    "other reports": (
        "amplify --randomizer krr --delta 0.1 --local-epsilon 1 --group 9:options=3 "
        "--group 9:options=4",
        ("same reports",),
    ),
    "honest": (
        f"{KRR} --honest 90% --group 9:local-epsilon=1",
        ("--honest", "count only honest people"),
    ),
    "nothing counted": (f"{KRR} --local-epsilon 1", ("--users is missing",)),
    "metric": (
        "amplify --randomizer metric --distance 1 --reach 1 --delta 0.1 --users 9 --dummies 5",
        ("--randomizer metric",),
    ),
    "generic dummies": (
        "amplify --randomizer generic --local-epsilon 1 --delta 0.1 --users 9 --dummies 5",
        ("Name its randomizer",),
    ),
    "local delta": (
        "amplify --randomizer generic --local-epsilon 1 --local-delta 2 --delta 0.1 --users 9",
        ("--local-delta", "[0, 1)"),
    ),
    "sigma": (
        "amplify --randomizer gaussian --span 3 --sigma 0.01 --delta 0.1 --users 9",
        ("sigma must be at least",),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_groups_get_a_sentence(terminal: Terminal, name: str) -> None:
    words, said = WRONG[name]
    result = terminal.typed(words)
    assert result.exit_code != 0
    told = " ".join(result.output.split())
    for part in said:
        assert part in told
    assert "Traceback" not in told
