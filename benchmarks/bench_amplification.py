"""Benchmark of certified amplified epsilons: `python -m benchmarks amplification`.

For one pair and for every pair of a domain.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.bench_peers import stronger_clones
from benchmarks.measuring import measurement, middle_seconds, seconds
from benchmarks.tightness import WIDEST, gaps, line_of, plan_grid
from metricshuffle.accounting.shuffling.binary_exact_bound import BinaryReports, epsilon_bracket
from metricshuffle.accounting.shuffling.blanket_bound import epsilon_upper as blanket_epsilon
from metricshuffle.accounting.shuffling.clone_bound import ClonePair, epsilon_lower, epsilon_upper
from metricshuffle.accounting.shuffling.closed_form_bounds import exact_tail
from metricshuffle.amplification.amplify import AmplifiedBand, amplify
from metricshuffle.amplification.best_bound import BestBoundProfile
from metricshuffle.amplification.inverse_search import fewest_users
from metricshuffle.randomizers import (
    BinaryRandomizedResponse,
    BoundedGeometric,
    ExponentialMechanism,
    HadamardResponse,
    KaryRandomizedResponse,
    LaplaceOnInterval,
    PlanarGeometric,
    Randomizer,
    Rappor,
    SubsetSelection,
    WitchHat,
)


def _one_pair() -> Iterator[dict[str, Any]]:
    for users in (10**3, 10**5, 10**6, 10**7, 10**8, 10**10, 10**12):
        delta = 0.01 / users
        target = 3e-4 if users >= 10**6 else 0.05
        for name, pair in (("symmetric", ClonePair(1, 1, 1)), ("asymmetric", ClonePair(1, 3, 2.5))):
            time = seconds(partial(epsilon_upper, pair, users, delta))
            goal = target if name == "symmetric" else None
            yield measurement(
                f"epsilon of the {name} clone pair, {users:.0e} users",
                time,
                "s",
                goal,
                at_most=True,
            )
            gap = epsilon_upper(pair, users, delta) / epsilon_lower(pair, users, delta) - 1
            yield measurement(
                "  its relative bracket", gap, "", 1e-4 if users > 10**5 else 1e-7, at_most=True
            )
    time = seconds(lambda: exact_tail(1.0, 3.4, 10**9, 1e-11))
    yield measurement("Theorem 1 with the exact tail, 1e9 users", time, "s", None)


def _randomizers() -> Iterator[dict[str, Any]]:
    """Rows for both bounds together, as in `amplify`, and one 200-bin blanket alone."""
    for users in (10**3, 10**4, 10**6, 10**9, 10**12):

        def both(people: int = users, delta: float = 0.01 / users) -> AmplifiedBand:
            # Starts at the randomizer: an answer caches its results, so asking the same one again
            # would take no time at all.
            return amplify(KaryRandomizedResponse(10, 1.0), people).epsilon(delta)

        time = middle_seconds(both)
        goal = 3e-3 if users == 10**3 else 1e-3
        yield measurement(
            f"10-RR, upper and lower, {users:.0e} users", time, "s", goal, at_most=True
        )
        if users <= 10**6:  # (beyond, the sums take minutes)
            plainly = middle_seconds(partial(stronger_clones, users), 3)
            yield measurement(
                "  plain sums of the stronger clones, an upper bound alone, which is looser",
                plainly,
                "s",
                None,
            )
            yield measurement(
                "  the time of both bounds over that of the sums",
                time / plainly,
                "",
                1.0,
                at_most=True,
            )
        band = both()
        yield measurement("  upper/lower", band.upper / band.lower, "", 1.005, at_most=True)
    law = LaplaceOnInterval(0.0, 1.0, 1.0, 199).blanket(0, 199)
    for users in (10**6, 10**9):
        time = seconds(partial(blanket_epsilon, law, users, 0.01 / users, relative=1e-5))
        yield measurement(
            f"blanket of 200 Laplace reports, one pair, {users:.0e} users",
            time,
            "s",
            0.01,
            at_most=True,
        )
    time = seconds(lambda: amplify(LaplaceOnInterval(0.0, 1.0, 1.0, 64), 10**6).epsilon(1e-8))
    yield measurement("Laplace on 64 steps, every pair, upper and lower", time, "s", None)


def _two_reports() -> Iterator[dict[str, Any]]:
    """Rows for binary randomized response, every data set: time relative to 10,000 people."""
    for local, delta in ((1.0, 1e-6), (0.1, 1e-6), (4.0, 1e-9)):
        law = BinaryReports.from_rows(BinaryRandomizedResponse(local).rows(), 0, 1)
        few = seconds(partial(epsilon_bracket, law, 10**4, delta), 10)
        for users in (10**6, 10**9, 10**12):
            ratio = seconds(partial(epsilon_bracket, law, users, delta), 10) / few
            yield measurement(
                f"binary response, local epsilon {local:g}: time for {users:.0e} over 1e4 users",
                ratio,
                "",
                5.0,
                at_most=True,
            )


def _fewest() -> Iterator[dict[str, Any]]:
    """Rows for the time to find a number of people, relative to one answer at that number."""
    members: dict[str, Randomizer] = {
        "10-RR": KaryRandomizedResponse(10, 1.0),
        "geometric, line of 33": BoundedGeometric(32, 2.0 / 32.0),
    }
    for name, member in members.items():
        users = fewest_users(member, 0.05, 1e-6).certified

        def answered(source: Randomizer = member, people: int = users) -> AmplifiedBand:
            return amplify(source, people).epsilon(1e-6)

        ratio = seconds(partial(fewest_users, member, 0.05, 1e-6), 3) / seconds(answered, 3)
        yield measurement(
            f"fewest users of {name}: time over that of one answer", ratio, "", 20.0, at_most=True
        )


def _tightness() -> Iterator[dict[str, Any]]:
    """Rows for the ratio of upper to lower bound of every built-in randomizer.

    It is the largest over local epsilons 1, 2, 4 and 6 and six settings.
    """
    found = list(gaps())
    for name in dict.fromkeys(one.randomizer for one in found):
        worst = max((one for one in found if one.randomizer == name), key=lambda one: one.ratio)
        where = f"epsilon {worst.epsilon:g}, {worst.users:.0e} users, delta {worst.delta:.0e}"
        yield measurement(
            f"upper/lower, {name}; worst at {where}", worst.ratio, "", WIDEST, at_most=True
        )


def _sized(inputs: int) -> dict[str, Randomizer]:
    side = round(inputs**0.5)
    return {
        "geometric, line": BoundedGeometric(inputs - 1, 2.0 / (inputs - 1)),
        "Laplace on an interval": LaplaceOnInterval(0.0, 1.0, 2.0, inputs - 1),
        "exponential, line": ExponentialMechanism(line_of(inputs), 2.0),
        "exponential, cells": ExponentialMechanism(plan_grid(side), 2.0),
        "geometric, cells": PlanarGeometric(side, side, 2.0 / (side - 1)),
        "RAPPOR": Rappor(inputs, 2.0),
        "subset": SubsetSelection(inputs, 2.0),
        "Hadamard": HadamardResponse(inputs, 2.0),
        "k-ary response": KaryRandomizedResponse(inputs, 2.0),
        "WitchHat": WitchHat(1.0, 2.0, 4.0, (inputs - 1) // 2),
    }


def _best_against_blanket() -> Iterator[dict[str, Any]]:
    """Rows for the time of the best bound over that of the blanket alone, every pair, uncached."""
    for inputs in (16, 64, 256):
        for name, randomizer in _sized(inputs).items():
            for users, delta in ((10**4, 1e-6), (10**6, 1e-10)):

                def answered(
                    bound: str,
                    source: Randomizer = randomizer,
                    many: int = users,
                    rare: float = delta,
                ) -> float:
                    return BestBoundProfile(source, many, source.diameter, bound).epsilon(
                        rare, source.diameter
                    )

                many_inputs = inputs > 64  # seconds each, and everything is compiled by then
                repeats, warm = (1, False) if many_inputs else (3, True)
                ratio = seconds(partial(answered, "best"), repeats, warm) / seconds(
                    partial(answered, "blanket"), repeats, warm
                )
                goal = 10.0 if inputs <= 64 else None
                yield measurement(
                    f"time over the blanket's: {name}, {inputs} inputs, {users:.0e} users",
                    ratio,
                    "",
                    goal,
                    at_most=True,
                )


def measurements() -> Iterator[dict[str, Any]]:
    """Yield the rows as they are measured, the slow ones last."""
    for part in (_randomizers, _one_pair, _two_reports, _fewest, _tightness, _best_against_blanket):
        yield from part()
