"""Counts of shuffled reports: coverage, profiles, JSON, and edge cases."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.tables import check_all

from metricshuffle.accounting.shuffling.blanket_bound import BlanketProfile
from metricshuffle.errors import DomainError, InputError, NotCertified, PlanError
from metricshuffle.estimation.interval_widths import MIN_NORMAL_PEOPLE, normal_width
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.frequencies import (
    Frequencies,
    displacements,
    shuffled_profile,
    single_report_profile,
)
from metricshuffle.protocols.protocol import Protocol
from metricshuffle.protocols.tally import Batch, Shuffled
from metricshuffle.queries import Estimate, Histogram, Inputs, Mean, Sum
from metricshuffle.randomizers import (
    BoundedGeometric,
    Channel,
    HadamardResponse,
    KaryRandomizedResponse,
    PlanarGeometric,
    Randomizer,
    WitchHat,
)
from metricshuffle.randomness import Randomness
from metricshuffle.spaces import Categories, Grid, Integers, Interval

SOURCE = Randomness.seeded("histograms")
FOUR = Histogram(Categories(["a", "b", "c", "d"]))


def protocol_of(randomizer: Randomizer, step: float = 1.0) -> Frequencies:
    return Frequencies(name="counts", trusted="shuffler", randomizer=randomizer, step=step)


def estimate(
    protocol: Frequencies, query: Histogram, codes: Any, source: Randomness = SOURCE
) -> Estimate:
    """From people who hold these codes, through real messages and a real tally."""
    messages = protocol.messages(Inputs(query, np.asarray(codes).reshape(-1, 1)), source)
    counts = protocol.counted(messages)
    return protocol.estimate(query, Shuffled(Batch(""), len(messages), messages.size, counts))


@pytest.mark.parametrize(
    ("query", "randomizer", "people"),
    [
        (FOUR, KaryRandomizedResponse(4, 1.5), [300, 60, 40, 0]),
        (FOUR, HadamardResponse(4, 1.5), [300, 60, 40, 0]),
        (Histogram(Integers(0, 3)), BoundedGeometric(3, 1.5), [0, 10, 20, 270]),
        (Histogram(Integers(0, 30), 8), BoundedGeometric(3, 1.5), [30, 40, 10, 220]),
        (Histogram(Grid(2, 2)), PlanarGeometric(2, 2, 2.0), [100, 50, 0, 150]),
    ],
    ids=lambda value: str(getattr(value, "kind", "")),
)
def test_intervals_cover_what_they_say(
    query: Histogram, randomizer: Randomizer, people: list[int]
) -> None:
    """Single, joint and Bernstein intervals; estimates are unbiased with stated errors."""
    protocol = protocol_of(
        randomizer, query.step if isinstance(randomizer, BoundedGeometric) else 1.0
    )
    runs = 150
    source = Randomness.seeded(f"coverage {randomizer} {query}")
    cells = len(people)
    truth = np.array(people, dtype=float)
    codes = np.repeat(np.arange(cells), people)
    each = np.zeros(cells)
    together = 0
    bernstein = 0
    sample = []
    for _ in range(runs):
        counted = estimate(protocol, query, codes, source)
        sample.append(counted.totals)
        low, high = counted.interval(0.9)
        each += (low <= truth) & (truth <= high)
        low, high = counted.interval(0.9, simultaneous=True)
        together += bool(np.all((low <= truth) & (truth <= high)))
        low, high = counted.interval(0.9, simultaneous=True, method="bernstein")
        bernstein += bool(np.all((low <= truth) & (truth <= high)))
        assert counted.possible is not None
        assert counted.possible.min() >= 0.0
        assert counted.possible.sum() == pytest.approx(1.0)
    slack = 4.0 * math.sqrt(0.09 / runs)
    assert np.all(each / runs >= 0.9 - slack)
    assert np.all(each / runs <= 0.999)
    assert together / runs >= 0.9 - slack
    assert bernstein / runs >= 0.9 - slack
    spread = np.std(sample, axis=0)
    assert counted.standard_errors == pytest.approx(spread, rel=0.3)
    assert np.abs(np.mean(sample, axis=0) - truth).max() <= 5.0 * spread.max() / math.sqrt(runs)


def test_what_is_promised_is_the_profiles_answer() -> None:
    """Shuffled: the randomizer's blanket among the honest; alone: the local epsilon."""
    randomizer = KaryRandomizedResponse(4, 2.0)
    profile = BlanketProfile(randomizer.blankets, 1000)
    epsilon = profile.epsilon(1e-6, 1.0)
    assert profile.delta(epsilon, 1.0) <= 1e-6
    protocol = protocol_of(randomizer)
    kept = Target(epsilon * (1 + 1e-9), 1e-6, 1.0)
    account = protocol.account(FOUR, kept, 1000, 1)
    assert account.kept
    assert (account.bound, account.shape, account.protects) == ("blanket", "flat", "one person")
    assert not protocol.account(FOUR, Target(epsilon * 0.99, 1e-6, 1.0), 1000, 1).kept
    assert not protocol.account(FOUR, kept, 500, 1).kept  # fewer honest people hide less
    assert protocol.guarantee(FOUR, kept, 1000, 1).trust.honest_reports == 1000
    alone = protocol.alone(FOUR, kept, 1)
    assert alone.epsilon == randomizer.local_epsilon()
    assert epsilon < 0.5 * alone.epsilon
    assert (
        3 * alone.epsilon
        <= protocol.alone(FOUR, kept, 3).epsilon
        <= 3 * alone.epsilon * (1 + 1e-14)
    )


def test_lines_and_grids_are_accounted_by_the_best_bound() -> None:
    """At most the blanket over all pairs, and one law per displacement; units of cells."""
    line = BoundedGeometric(5, 0.4)
    best = shuffled_profile(line, 2000)
    shifted = displacements(line, 2000)
    assert shifted is not None
    pairs = BlanketProfile(line.blankets, 2000).epsilon(1e-6, 2.0)
    assert (
        best.epsilon(1e-6, 2.0)
        < 0.97 * pairs
        <= pairs * (1 + 1e-6)
        < shifted.epsilon(1e-6, 2.0)
        < 1.5 * pairs
    )
    assert displacements(KaryRandomizedResponse(3, 1.0), 2000) is None
    grid = PlanarGeometric(3, 2, 0.01, cell=100.0)
    assert single_report_profile(grid).pure(100.0) == pytest.approx(1.0 / math.sqrt(2.0))


@check_all(
    "randomizer",
    [PlanarGeometric(2, 3, 1.0), Channel([[0.8, 0.2], [0.3, 0.7]]), WitchHat(1.0, 2.0, 1.0, 8)],
)
def test_protocols_survive_json(randomizer: Randomizer) -> None:
    """Every kind of randomizer is read back as itself, and gives the same estimate."""
    protocol = protocol_of(randomizer)
    again = Protocol.of_kind(protocol.model_dump(mode="json"))
    assert isinstance(again, Frequencies)
    assert again.model_dump(mode="json") == protocol.model_dump(mode="json")
    assert np.array_equal(again.randomizer.rows(), randomizer.rows())
    with pytest.raises(InputError, match="magic"):
        Protocol.of_kind({**protocol.model_dump(mode="json"), "randomizer": {"kind": "magic"}})


def test_one_report_of_two_categories() -> None:
    """Unbiased but impossible, then projected; the interval covers everything."""
    query = Histogram(Categories(["no", "yes"]))
    protocol = protocol_of(KaryRandomizedResponse(2, 1.0))
    counted = protocol.estimate(query, Shuffled(Batch(""), 1, 1, {0: [0, 1]}))
    assert counted.totals.sum() == pytest.approx(1.0)
    assert counted.totals[1] > 1.0
    assert counted.possible is not None
    assert counted.possible[1] == pytest.approx(1.0, abs=0.02)  # within a hundredth of a nat
    assert np.asarray(query.answer(counted).interval).tolist() == [[0.0, 1.0], [0.0, 1.0]]
    assert "mostly noise" in counted.warning


def test_warnings_are_words_in_a_field() -> None:
    """Where inversion lets one report count for many people, and only there."""
    few = estimate(
        protocol_of(BoundedGeometric(9, 0.1)),
        Histogram(Integers(0, 9)),
        np.repeat(np.arange(10), 10),
    )
    assert "one report count for up to" in few.warning
    many = estimate(
        protocol_of(KaryRandomizedResponse(4, 3.0)),
        FOUR,
        np.repeat(np.arange(4), [2000, 1000, 500, 500]),
    )
    assert many.warning == ""


def test_few_people_get_intervals_that_need_no_normal_law() -> None:
    """Chebyshev below thirty reports, then the normal law: for shares and totals."""
    for people in (MIN_NORMAL_PEOPLE - 1, MIN_NORMAL_PEOPLE):
        width = 1.0 / math.sqrt(0.05) if people < MIN_NORMAL_PEOPLE else normal_width(0.05)
        counted = estimate(protocol_of(KaryRandomizedResponse(4, 3.0)), FOUR, np.arange(people) % 4)
        low, high = counted.interval(0.95)
        np.testing.assert_allclose(counted.totals - low, width * counted.standard_errors)
        assert np.all(
            high - counted.totals >= width * counted.standard_errors
        )  # a larger share would have a larger variance
        hat = WitchHat(0.5, 2.0, 2.0, 2048)
        total = Frequencies(
            name="witch-hat", trusted="nobody", randomizer=hat, readout="total", step=hat.step
        )
        query = Sum(Interval(0.0, 1.0))
        messages = total.messages(query.inputs(np.linspace(0.0, 1.0, people), hat.step), SOURCE)
        estimated = total.estimate(
            query, Shuffled(Batch(""), people, people, total.counted(messages))
        )
        low, high = estimated.interval(0.95)
        np.testing.assert_allclose(high - low, 2.0 * width * estimated.standard_errors)


@pytest.mark.parametrize(("people", "epsilon"), [(31, 1.0), (31, 0.5), (100, 4.0), (10, 1.0)])
def test_intervals_hold_where_everybody_holds_the_same(people: int, epsilon: float) -> None:
    """With the variance at the estimated share, only 86 of 100 intervals covered."""
    query = Histogram(Categories([f"label {place}" for place in range(12)]))
    protocol = protocol_of(KaryRandomizedResponse(12, epsilon))
    generator = np.random.default_rng(5)
    runs = 400
    held = 0
    law = protocol.randomizer.rows()[-1]
    for counts in generator.multinomial(people, law / law.sum(), runs):
        estimated = protocol.estimate(
            query, Shuffled(Batch(""), people, people, {0: counts.tolist()})
        )
        low, high = estimated.interval(0.95)
        held += bool(low[-1] <= people <= high[-1])
    assert held / runs >= 0.95 - 3.0 * math.sqrt(0.0475 / runs)


@check_all(
    "counts",
    [
        [50, 49],
        [50, 51],
        [-1, 101],
        [100],
        [100, 0, 0],
        [2**62] * 4,
        [2**62, 2**62, 2**62, 2**62 + 100],
        [2**63 + 50, 50 - 2**63],
        [2**90, 0],
    ],
)
def test_counts_that_cannot_be_are_refused(counts: list[int]) -> None:
    """Also those whose sum, in 64 bits, would come out as the number of reports."""
    query = FOUR if len(counts) == 4 else Histogram(Categories(["no", "yes"]))
    protocol = protocol_of(KaryRandomizedResponse(query.cells, 1.0))
    with pytest.raises(PlanError, match="counts that sum to 100"):
        protocol.estimate(query, Shuffled(Batch(""), 100, 100, {0: counts}))


def test_wrong_messages_are_told() -> None:
    """Reports outside, rows of another width, and channels that cannot be inverted."""
    protocol = protocol_of(KaryRandomizedResponse(4, 1.0))
    with pytest.raises(DomainError, match="report 1 "):
        protocol.counted(np.array([[0], [4]]))
    for wrong in (np.zeros((3, 2), dtype=np.int64), np.zeros(3, dtype=np.int64), np.zeros((3, 1))):
        with pytest.raises(PlanError, match="1 whole number"):
            protocol.counted(wrong)
    with pytest.raises(NotCertified, match="condition number"):
        estimate(
            protocol_of(Channel([[0.5, 0.5], [0.5, 0.5]])),
            Histogram(Categories(["no", "yes"])),
            [0, 1],
        )
    counted = estimate(protocol, FOUR, [0, 1])
    with pytest.raises(InputError, match="level"):
        counted.interval(1.0)
    with pytest.raises(InputError, match="method"):
        counted.interval(method="exact")  # type: ignore[arg-type]


# --- WitchHat reports read out as a total ---


@pytest.mark.parametrize("kind", [Sum, pytest.param(Mean, marks=pytest.mark.slow)])
def test_a_total_of_witch_hat_reports_is_unbiased_and_covered(kind: type[Sum] | type[Mean]) -> None:
    """People at both ends and between: unbiased, with at most the spread of the ends."""
    query = kind(Interval(-2.0, 8.0))
    hat = WitchHat(5.0, 3.0, 0.4, 2048)
    people = 100
    runs = 150
    protocol = Frequencies(
        name="witch-hat", trusted="shuffler", randomizer=hat, readout="total", step=hat.step
    )
    protocol.check(query)
    source = Randomness.seeded(f"hat {query.kind}")
    for values in (np.linspace(-2.0, 8.0, people), np.full(people, 8.0)):
        truth = values.sum() if query.kind == "sum" else values.mean()
        inputs = query.inputs(values, hat.step)
        answers = []
        for _ in range(runs):
            messages = protocol.messages(inputs, source)
            answers.append(
                query.answer(
                    protocol.estimate(
                        query, Shuffled(Batch(""), people, people, protocol.counted(messages))
                    )
                )
            )
        numbers = np.array([answer.value for answer in answers])
        claimed = answers[0].standard_error
        assert isinstance(claimed, float)
        rounding = 0.5 * hat.step * (people if query.kind == "sum" else 1)
        assert abs(numbers.mean() - truth) <= 4.5 * claimed / math.sqrt(runs) + rounding
        ratio = math.sqrt(((numbers - truth) ** 2).mean()) / claimed
        assert ratio <= 1.2
        if np.ptp(values) == 0.0:
            assert ratio >= 0.8
        inside = [
            low <= truth <= high
            for low, high in (np.ravel(np.asarray(answer.interval)) for answer in answers)
        ]
        assert np.mean(inside) >= 0.95 - 4.0 * math.sqrt(0.0475 / runs)


def test_the_standard_error_of_a_total_is_the_exact_variance_at_an_end() -> None:
    """By the law itself: the sum over all reports of probability times squared error."""
    hat = WitchHat(5.0, 3.0, 0.4, 64)
    protocol = Frequencies(
        name="witch-hat", trusted="nobody", randomizer=hat, readout="total", step=hat.step
    )
    reads = hat.debiasing()[:, 0] / hat.step
    counts = np.bincount([0, hat.outputs - 1], minlength=hat.outputs).tolist()
    estimated = protocol.estimate(Sum(Interval(0.0, 10.0)), Shuffled(Batch(""), 2, 2, {0: counts}))
    for code in (0, hat.inputs - 1):
        law = hat.law(code)
        mean = float(law @ reads)
        assert mean == pytest.approx(code - hat.steps, abs=1e-9)
        exact = math.sqrt(float(law @ (reads - mean) ** 2) * 2)
        assert estimated.standard_errors[0] == pytest.approx(exact, rel=1e-9)
    assert estimated.totals[0] == pytest.approx(reads[0] + reads[-1] + 2 * hat.steps)
