"""Guarantees of random plans, attacked without the accountants' code."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from tests.selfcheck.attacks import Attack, attacks
from tests.selfcheck.drawn_plans import KINDS, drawn

import metricshuffle as ms

FAST = range(22, 42)
ALL = range(2000)
CHUNK = 50
# What laws in double precision are off by: relative, and where nothing is promised to be possible.
NEARLY = 1.0 + 1e-7
NOTHING = 1e-13


def refuted(attack: Attack, guarantee: ms.Guarantee, rounds: int) -> bool:
    """Whether the view shows more than the guarantee allows at its distance."""
    if math.isinf(guarantee.epsilon):
        return False
    share = 1.0 if guarantee.shape == "flat" else min(1.0, attack.distance / guarantee.distance)
    allowed = guarantee.epsilon * share
    if guarantee.delta == 0.0:
        return attack.loss(rounds) > allowed * (1.0 + 1e-7) + 1e-9
    return attack.delta(allowed * (1.0 + 1e-12), rounds) > guarantee.delta * NEARLY + NOTHING


def shown(attack: Attack, guarantee: ms.Guarantee, rounds: int) -> bool:
    """Whether four fifths of epsilon and of delta would be refuted: the attack is then tight."""
    less = guarantee.model_copy(
        update={"epsilon": 0.8 * guarantee.epsilon, "delta": 0.8 * guarantee.delta}
    )
    return refuted(attack, less, rounds)


def attack_plan(seed: int, tally: Counter[str], sharp: Counter[str]) -> None:
    """Attack both guarantees of every candidate of a drawn plan."""
    name, plan = drawn(seed)
    if isinstance(plan, str):
        assert plan.endswith((".", "!")), f"seed {seed}: {plan}"
        tally["refused"] += 1
        return
    numbers = np.random.default_rng(seed + 10**6)
    for offer in plan.candidates:
        protocol: Any = offer.mechanism
        promises = [(offer.guarantee, protocol, plan.honest)]
        if protocol.trusted in ("shuffler", "aggregator") and not isinstance(
            protocol, ms.NoisyAnswers
        ):
            promises.append((offer.fallback, protocol.model_copy(update={"trusted": "nobody"}), 1))
        for guarantee, seen, honest in promises:
            found = False
            for attack in attacks(plan.query, seen, honest, guarantee.distance, numbers):
                where = (
                    f"seed {seed}: {plan.query}, {offer.protocol} ({protocol.encoding}), "
                    f"{guarantee}; {attack.what}, {attack.distance!r}"
                )
                assert not refuted(attack, guarantee, plan.rounds), where
                found = found or (plan.rounds == 1 and shown(attack, guarantee, 1))
                tally["attacks"] += 1
            tally[name] += 1
            sharp[name] += found
    tally["plans"] += 1


@pytest.mark.thorough
def test_guarantees_of_random_plans() -> None:
    tally: Counter[str] = Counter()
    sharp: Counter[str] = Counter()
    for seed in FAST:
        attack_plan(seed, tally, sharp)
    assert tally["plans"] >= 12, tally
    assert sum(sharp.values()) >= 10, sharp


@pytest.mark.slow
@pytest.mark.parametrize("start", ALL[::CHUNK])
def test_guarantees_of_two_thousand_random_plans(start: int) -> None:
    tally: Counter[str] = Counter()
    sharp: Counter[str] = Counter()
    for seed in range(start, start + CHUNK):
        attack_plan(seed, tally, sharp)
    assert tally["plans"] >= CHUNK // 3, tally
    for kind in (
        KINDS
    ):  # the attacks would notice a promise that is a quarter too good, in every kind of question
        assert tally[kind] < 30 or sharp[kind], (kind, tally, sharp)
