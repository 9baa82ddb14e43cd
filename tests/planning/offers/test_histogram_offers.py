"""Histograms from one report each: calibrated tightly, verified at every move, and errors."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.tables import check_all

from metricshuffle.accounting.shuffling.blanket_bound import BlanketProfile
from metricshuffle.errors import BatchTooSmall, DomainError, InputError, PlanError
from metricshuffle.planning import Candidate, Plan, plan
from metricshuffle.planning.candidates.histogram_calibration import LARGEST_LOCAL_EPSILON
from metricshuffle.privacy.profile import Shape
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.frequencies import Frequencies, shuffled_profile, single_report_profile
from metricshuffle.protocols.protocol import Reports
from metricshuffle.protocols.tally import Batch, Shuffled
from metricshuffle.queries import Histogram
from metricshuffle.randomizers import (
    BoundedGeometric,
    KaryRandomizedResponse,
    PlanarGeometric,
    Randomizer,
)
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Categories, Domain, Grid, Integers, Interval

LABELS = Histogram(Categories(["red", "green", "blue"]))
TARGET = Target(1.0, 1e-6, 1.0)


def randomizer_of(offer: Candidate) -> Randomizer:
    assert isinstance(offer.mechanism, Frequencies)
    return offer.mechanism.randomizer


@pytest.fixture(scope="module")
def colours() -> Plan:
    return plan(
        LABELS, TARGET, 2000, "90%", protocols=["k-ary-randomized-response", "hadamard-response"]
    )


def test_categories_are_calibrated_to_the_edge(colours: Plan) -> None:
    """A hundredth more local epsilon breaks the guarantee; the fallback is that epsilon."""
    randomizer = randomizer_of(colours.choice)
    assert isinstance(randomizer, KaryRandomizedResponse)
    assert BlanketProfile(randomizer.blankets, 1800).covers_at(1.0, 1e-6, 1.0)
    more = KaryRandomizedResponse(3, randomizer.epsilon * 1.01)
    assert not BlanketProfile(more.blankets, 1800).covers_at(1.0, 1e-6, 1.0)
    assert randomizer.epsilon > 3.0
    assert (colours.guarantee.epsilon, colours.guarantee.shape) == (1.0, "flat")
    assert colours.if_shuffler_colludes.epsilon == randomizer.local_epsilon()
    errors = [offer.expected_error for offer in colours.candidates]
    assert errors == sorted(errors)
    assert {offer.protocol for offer in colours.candidates} == {
        "k-ary-randomized-response",
        "hadamard-response",
    }


def test_the_expected_error_is_what_simulation_finds(colours: Plan) -> None:
    """By real reports of people spread evenly."""
    randomizer = randomizer_of(colours.choice)
    source = Randomness.seeded("errors")
    people = np.arange(2000) % 3
    truth = np.bincount(people) / 2000
    errors = [
        np.abs(randomizer.totals(randomizer.reports(people, source)) / 2000 - truth).mean()
        for _ in range(400)
    ]
    assert np.mean(errors) == pytest.approx(colours.choice.expected_error, rel=0.1)


@pytest.mark.parametrize("shape", ["linear", "flat"])
@pytest.mark.parametrize(
    ("domain", "step", "distance"),
    [
        (Integers(10, 18, "km"), None, 3.0),
        (Integers(0, 35), 4, 12.0),
        (Interval(0.0, 2.0), 0.25, 0.75),
        (Grid(6, 4, 100.0, "m"), None, 200.0),
    ],
    ids=["line", "bins", "bins of reals", "cells"],
)
def test_metric_domains_keep_the_target_at_every_move(
    domain: Domain, step: float | None, distance: float, shape: Shape
) -> None:
    """Each randomizer by its own profile, at every distance or at the smallest move."""
    query = Histogram(domain, step)
    target = Target(0.8, 1e-6, distance, shape)
    one_report = [
        "planar-geometric" if isinstance(domain, Grid) else "bounded-geometric",
        "k-ary-randomized-response",
    ]
    made = plan(query, target, 20_000, protocols=one_report)
    assert {offer.protocol for offer in made.candidates} == set(one_report)
    for offer in made.candidates:
        randomizer = randomizer_of(offer)
        profile = shuffled_profile(randomizer, 20_000)
        metric = isinstance(randomizer, BoundedGeometric | PlanarGeometric)
        steps = (
            distance / query.step * (1 + 1e-12)
            if isinstance(randomizer, BoundedGeometric)
            else distance
        )
        if metric:
            assert profile.covers(0.8, 1e-6, steps, shape)
            assert offer.fallback.epsilon == pytest.approx(
                single_report_profile(randomizer).pure(steps)
            )
        else:
            smallest = 0.8 if shape == "flat" else 0.8 * query.step / distance
            assert profile.covers_at(smallest, 1e-6, 1.0)
        assert offer.guarantee.trust.honest_reports == 20_000
        assert offer.fallback.epsilon > 0.8  # shuffling bought something
        assert "instead of" in offer.gain
        assert offer.guarantee.distance == distance


def test_bins_promise_what_a_line_of_as_many_values_does() -> None:
    """Bins four wide at distance eight have the noise of a line at distance two."""
    bins = plan(
        Histogram(Integers(0, 23), 4), Target(1.0, 1e-6, 8.0), 3000, protocols=["bounded-geometric"]
    )
    line = plan(
        Histogram(Integers(0, 5)), Target(1.0, 1e-6, 2.0), 3000, protocols=["bounded-geometric"]
    )
    first = randomizer_of(bins.choice)
    second = randomizer_of(line.choice)
    assert isinstance(first, BoundedGeometric)
    assert isinstance(second, BoundedGeometric)
    assert (first.span, second.span) == (5, 5)
    assert first.rate == pytest.approx(second.rate, rel=1e-6)
    assert bins.choice.expected_error == pytest.approx(line.choice.expected_error, rel=1e-6)
    assert (bins.guarantee.distance, bins.guarantee.between) == (8.0, "bins of 4")


def test_cells_far_larger_than_a_unit_are_planned() -> None:
    """Five kilometres in metres: the rate times the cell once exceeded the samplers' range."""
    made = plan(
        Histogram(Grid(6, 6, 5000.0, "m")), Target(2.0, 0.0, 10_000.0), 300, trusted="nobody"
    )
    single = {offer.protocol for offer in made.candidates if not offer.baseline}
    assert single == {"planar-geometric", "k-ary-randomized-response"}
    assert made.choice.fallback.epsilon <= 2.0
    fine = plan(Histogram(Interval(0.0, 1e-6), 1e-7), Target(1.0, 0.0, 3e-7), 300, trusted="nobody")
    single = {offer.protocol for offer in fine.candidates if not offer.baseline}
    assert single == {"bounded-geometric", "k-ary-randomized-response"}


def test_the_three_roles(colours: Plan) -> None:
    """In two parts; the interval holds the truth, and what was seen and seeded is said."""
    values = ["red"] * 1200 + ["blue"] * 800
    source = Randomness.seeded("roles")
    first = colours.randomize(values[:1500], source)
    second = colours.randomize(values[1500:], source)
    shuffled = colours.shuffle(iter([first, second]))
    assert shuffled.reports == 2000
    release = colours.estimate(shuffled)
    low, high = release.interval(1 - 1e-6).T
    assert np.all((low <= [0.6, 0.0, 0.4]) & (high >= [0.6, 0.0, 0.4]))
    assert (release.plan, release.raw_values_seen, release.unsafe_seeded) == (
        colours.digest,
        False,
        True,
    )
    assert release.guarantee == colours.guarantee
    assert "red" in str(release)
    assert "UNSAFE" in str(release)
    assert colours.run(values).raw_values_seen
    assert not colours.run(values).unsafe_seeded


def test_what_does_not_belong_is_refused(colours: Plan) -> None:
    """Too few or foreign reports, other widths, values outside, counts, unknown labels."""
    good = colours.randomize(["red"] * 1800)

    def like(messages: Any) -> Reports:
        return replace(colours.randomize(["red"]), messages=messages)

    with pytest.raises(BatchTooSmall, match="1,799"):
        colours.shuffle(like(good.messages[:1799]))
    with pytest.raises(PlanError, match="another task"):
        colours.shuffle(replace(good, batch=Batch("0" * 64)))
    with pytest.raises(PlanError, match="1 whole number"):
        colours.shuffle(like(good.messages.ravel()))
    with pytest.raises(DomainError, match="report 0"):
        colours.shuffle(like(np.full((1800, 1), 7)))
    with pytest.raises(InputError, match="only Reports"):
        colours.shuffle([1])  # type: ignore[list-item]
    with pytest.raises(InputError, match="shuffled first"):
        colours.estimate(good)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="another task"):
        colours.estimate(Shuffled(Batch("0" * 64), 1800, 1800, {0: [1800, 0, 0]}))
    for sums in ({0: [1800]}, {0: [1, 2, 3]}, {0: [1801, -1, 0]}):
        with pytest.raises(PlanError, match=r"counts that sum|rows of 3 sums"):
            colours.estimate(Shuffled(Batch(colours.digest), 1800, 1800, sums))
    with pytest.raises(BatchTooSmall, match="honest ones"):
        colours.estimate(Shuffled(Batch(colours.digest), 3, 3, {0: [1, 1, 1]}))
    with pytest.raises(DomainError, match="purple"):
        colours.randomize(["purple"])


def test_trusting_nobody_or_promising_certainty() -> None:
    """Then a report hides alone, and the whole of epsilon is its own."""
    alone = plan(LABELS, TARGET, 2000, trusted="nobody")
    randomizer = randomizer_of(alone.choice)
    assert isinstance(randomizer, KaryRandomizedResponse)
    assert randomizer.epsilon == pytest.approx(1.0)
    assert alone.guarantee.trust.trusted == "nobody"
    assert alone.minimum == 1
    pure = plan(
        Histogram(Grid(6, 4, 100.0)), Target(1.0, 0.0, 300.0), 2000, protocols=["planar-geometric"]
    )
    assert pure.if_shuffler_colludes.epsilon <= 1.0
    assert pure.guarantee.delta == 0.0
    # Where no diagonal lies within the distance, an axis may have all of epsilon.
    near = plan(
        Histogram(Grid(6, 4, 100.0)), Target(1.0, 0.0, 100.0), 2000, protocols=["planar-geometric"]
    )
    planar = randomizer_of(near.choice)
    assert isinstance(planar, PlanarGeometric)
    assert planar.axes[0].rate == pytest.approx(1.0)


def test_a_single_person_has_nobody_to_hide_among() -> None:
    """It is said that shuffling buys nothing, and nobody is trusted."""
    made = plan(LABELS, TARGET, 1)
    assert "Shuffling buys nothing" in made.choice.gain
    assert made.guarantee.trust.trusted == "nobody"
    assert sum(made.run(["red"]).value["unbiased"]) == pytest.approx(1.0)


def test_a_cap_on_what_one_report_gives_away(colours: Plan) -> None:
    """Also below what would be allowed alone, and over all rounds together."""
    capped = plan(LABELS, TARGET, 2000, max_local_epsilon=1.5)
    assert capped.if_shuffler_colludes.epsilon == pytest.approx(1.5)
    assert capped.choice.expected_error > colours.choice.expected_error
    assert plan(LABELS, TARGET, 2000, max_local_epsilon=0.5).if_shuffler_colludes.epsilon <= 0.5
    twice = plan(LABELS, TARGET, 2000, max_local_epsilon=1.5, rounds=2)
    assert twice.if_shuffler_colludes.epsilon <= 1.5 * (1 + 1e-9)
    assert twice.if_shuffler_colludes.rounds == 2


def test_a_generous_target_stops_at_the_largest_local_epsilon() -> None:
    """Beyond it a report hides nothing worth shuffling for."""
    generous = plan(LABELS, Target(500.0, 1e-6, 1.0), 2000, protocols=["k-ary-randomized-response"])
    assert (
        0.999 * LARGEST_LOCAL_EPSILON
        <= generous.if_shuffler_colludes.epsilon
        <= LARGEST_LOCAL_EPSILON
    )


@check_all(
    ("choices", "words"),
    [
        ({"protocols": ["magic"]}, "choose among .*k-ary"),
        ({"protocols": []}, "choose among"),
        ({"max_local_epsilon": math.nan}, "max_local_epsilon"),
        ({"target": Target(1.0, 1e-6, 2.0)}, "distance must be 1"),
        ({"query": Histogram(Integers(0, 9)), "target": Target(1.0, 1e-6, 0.5)}, "one step"),
        ({"query": Histogram(Integers(0, 9)), "target": Target(1.0, 1e-6, 10.0)}, "diameter"),
        ({"users": 0}, "users must be"),
        ({"honest": 3000}, "cannot exceed"),
    ],
)
def test_wrong_wishes_are_told(choices: dict[str, Any], words: str) -> None:
    """Each by its name."""
    with pytest.raises(InputError, match=words):
        plan(**{"query": LABELS, "target": TARGET, "users": 2000, **choices})


def test_thousands_of_labels_are_planned() -> None:
    many = Histogram(Categories([f"label {code}" for code in range(4096)]))
    chosen = plan(many, TARGET, 20_000, protocols=["noisy-vectors"], floor="never").choice
    assert chosen.encoding == "cells, no floor"
    assert chosen.expected_error < 2e-4
    more = Histogram(Categories([f"label {code}" for code in range(4097)]))
    with pytest.raises(InputError, match="no feature set fits"):
        plan(more, TARGET, 20_000, protocols=["noisy-vectors"])
    assert plan(more, TARGET, 20_000).choice.protocol == "shuffler-noise"
