"""Rounds of shuffled updates by the protocol of Flower's `PrivacyAccountant`.

Flower is not among the packages of the checks: it needs an older protobuf than Spark. Where it is
installed, its own types are used; elsewhere their documented fields. test_own_environments.py runs
these tests where it is.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import math
import runpy
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.interop.settings import Drawn, settings

import metricshuffle as ms
from metricshuffle.errors import InputError, MissingExtra
from metricshuffle.interop.flower_accountant import FlowerAccountant, ShuffledPrivacyEvent
from metricshuffle.randomizers import BinaryRandomizedResponse, BoundedGeometric

INSTALLED = importlib.util.find_spec("flwr") is not None
BINARY = BinaryRandomizedResponse(1.0)
DELTA = 1e-6

if TYPE_CHECKING or not INSTALLED:

    class NeighboringRelation(str, Enum):  # noqa: UP042 - as in Flower
        ADD_OR_REMOVE_ONE = "add-or-remove-one"
        REPLACE_ONE = "replace-one"

    class SamplingMethod(str, Enum):  # noqa: UP042 - as in Flower
        WITHOUT_REPLACEMENT = "without-replacement"
        NO_AMPLIFICATION = "no-amplification"

    @dataclass(frozen=True)
    class PrivacyConfig:
        """The fields of Flower's class."""

        target_delta: float
        population_size: int
        neighboring_relation: NeighboringRelation
        sampling_method: SamplingMethod
        max_epsilon: float | None = None

else:
    from flwr.supercore.privacy_accounting import (
        NeighboringRelation,
        PrivacyConfig,
        SamplingMethod,
    )


def accountant(people: int = 1000, max_epsilon: float | None = None) -> FlowerAccountant:
    return FlowerAccountant(
        PrivacyConfig(
            target_delta=DELTA,
            population_size=people,
            neighboring_relation=NeighboringRelation.REPLACE_ONE,
            sampling_method=SamplingMethod.WITHOUT_REPLACEMENT,
            max_epsilon=max_epsilon,
        )
    )


def test_one_round_is_our_amplification() -> None:
    """Sampling a hundred of a thousand clients does not amplify: who takes part is public."""
    rounds = accountant()
    assert rounds.get_epsilon(DELTA) == 0.0
    assert rounds.get_delta(1.0) == 0.0
    rounds.compose(ShuffledPrivacyEvent(BINARY, 100, 1000))
    ours = ms.amplify(BINARY, 100)
    assert rounds.get_epsilon(DELTA) == ours.epsilon(DELTA).upper
    assert rounds.get_delta(0.3) == ours.delta(0.3).upper
    assert rounds.num_releases == 1
    assert rounds.config.population_size == 1000


def test_rounds_compose_and_are_predicted() -> None:
    rounds = accountant(max_epsilon=2.0)
    event = ShuffledPrivacyEvent(BINARY, 100, 1000)
    alone = event.profile.epsilon(DELTA)
    rounds.compose(event, 4)
    assert alone < rounds.get_epsilon(DELTA) < 4 * alone
    spent = rounds.get_epsilon(DELTA)
    assert not rounds.would_exceed(event, max_epsilon=100.0)
    assert rounds.would_exceed(event, max_epsilon=spent)
    assert rounds.would_exceed(event, count=1000)
    assert (rounds.num_releases, rounds.get_epsilon(DELTA)) == (4, spent)
    with pytest.raises(InputError, match="max_epsilon must be a finite number > 0"):
        accountant().would_exceed(event)


def test_the_state_is_json_and_damage_is_noticed() -> None:
    rounds = accountant()
    rounds.compose(ShuffledPrivacyEvent(BINARY, 100, 1000), 3)
    rounds.compose(ShuffledPrivacyEvent(BoundedGeometric(3, 0.3), 50, 1000, 2.0))
    state = json.loads(json.dumps(rounds.state_dict()))
    again = accountant()
    again.load_state_dict(state)
    assert again.num_releases == 4
    assert again.state_dict() == rounds.state_dict()
    for damaged, words in (
        ({**state, "rounds": []}, "checksum does not match"),
        ({**state, "format": "rdp"}, "not a state of this accountant"),
    ):
        with pytest.raises(InputError, match=words):
            again.load_state_dict(damaged)
        assert again.num_releases == 4
    with pytest.raises(InputError, match="population_size 1000, and this accountant has 2000"):
        accountant(2000).load_state_dict(state)


def test_what_is_not_promised_is_refused() -> None:
    config = PrivacyConfig(
        DELTA, 1000, NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.NO_AMPLIFICATION
    )
    with pytest.raises(InputError, match="must be 'replace-one', got 'add-or-remove-one'"):
        FlowerAccountant(config)
    rounds = accountant()
    with pytest.raises(InputError, match="composes a ShuffledPrivacyEvent, got str"):
        rounds.compose("gaussian")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="they must agree"):
        rounds.compose(ShuffledPrivacyEvent(BINARY, 100, 500))
    for count in (0, -1, 1.5, True):
        with pytest.raises(InputError, match="count must be a whole number"):
            rounds.compose(ShuffledPrivacyEvent(BINARY, 100, 1000), count)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="must not exceed population_size"):
        ShuffledPrivacyEvent(BINARY, 100, 50)
    with pytest.raises(InputError, match="must be a randomizer, got float"):
        ShuffledPrivacyEvent(1.0, 100, 1000)  # type: ignore[arg-type]
    assert rounds.num_releases == 0
    with pytest.raises(InputError):
        rounds.get_epsilon(math.nan)


@pytest.mark.skipif(INSTALLED, reason="Flower is installed")
def test_without_flower_its_record_is_refused_by_name() -> None:
    with pytest.raises(MissingExtra, match=r"'flwr'; install it with: .*metricshuffle\[flower\]"):
        accountant().get_privacy_spent()


@pytest.mark.skipif(not INSTALLED, reason="needs Flower (pip install flwr), which is not installed")
def test_with_flower_it_is_its_accountant() -> None:
    """Every member of the protocol, with the same parameters, and its own record."""
    from flwr.supercore.privacy_accounting import PrivacyAccountant, PrivacySpent

    for name, member in vars(PrivacyAccountant).items():
        if name.startswith("_"):
            continue
        ours = inspect.getattr_static(FlowerAccountant, name)
        assert isinstance(ours, property) == isinstance(member, property)
        if not isinstance(member, property):
            theirs = inspect.signature(member).parameters
            assert list(inspect.signature(ours).parameters) == list(theirs)
    rounds = accountant()
    rounds.compose(ShuffledPrivacyEvent(BINARY, 100, 1000), 2)
    spent = rounds.get_privacy_spent()
    assert isinstance(spent, PrivacySpent)
    assert (spent.epsilon, spent.delta) == (rounds.get_epsilon(DELTA), DELTA)
    assert (spent.num_releases, spent.accounting_method) == (2, "metricshuffle")


@pytest.mark.skipif(not INSTALLED, reason="needs Flower (pip install flwr), which is not installed")
def test_the_example_stops_before_the_budget_is_exceeded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = Path(__file__).parents[2] / "examples" / "flower_rounds.py"
    main = runpy.run_path(str(path))["main"]
    spent = main(500, 0.6)
    assert 0 < spent.num_releases < 50
    assert spent.get_epsilon(DELTA) <= 0.6
    assert capsys.readouterr().out.count("round ") == spent.num_releases


def check_never_smaller(drawn: Drawn) -> None:
    """Epsilon and delta of one round and of two, at the distance of the event."""
    rounds = accountant(drawn.users)
    event = ShuffledPrivacyEvent(drawn.randomizer, drawn.users, drawn.users, drawn.distance)
    profile = ms.amplify(drawn.randomizer, drawn.users).upper
    epsilon = profile.epsilon(drawn.delta, drawn.reach)
    for _ in range(2):
        rounds.compose(event)
        assert rounds.get_epsilon(drawn.delta) >= epsilon, drawn
        assert rounds.get_delta(epsilon / 2) >= profile.delta(epsilon / 2, drawn.reach), drawn


@pytest.mark.thorough
def test_never_smaller_than_the_profile() -> None:
    for drawn in settings(50, 6):
        check_never_smaller(drawn)


@pytest.mark.slow
def test_never_smaller_than_the_profile_in_a_thousand_settings() -> None:
    for drawn in settings(1000, 7):
        check_never_smaller(drawn)
