"""Exact outcomes of a few shuffled reports, and verdicts on printed upper bounds."""

from __future__ import annotations

from fractions import Fraction

from tests.oracles import explicit_channels as channels
from tests.oracles.shuffled_brute_force import shuffled_delta
from tests.tables import check_all

from metricshuffle_papers.outcomes import (
    count_law,
    exact_delta,
    merged_rows,
    outcomes,
    response_rows,
)
from metricshuffle_papers.reproduction import Verdict
from metricshuffle_papers.upper_verdict import upper_row, upper_verdict


@check_all("held", [(0,), (2,), (0, 1), (2, 3, 3)])
@check_all("growth", [Fraction(1), Fraction(12, 5), Fraction(3)])
def test_every_data_set_agrees_with_the_enumeration(
    held: tuple[int, ...], growth: Fraction
) -> None:
    rows = response_rows(Fraction(3), 4)
    assert rows == channels.randomized_response(Fraction(3), 4)
    weights = channels.whole_weights(rows)
    expected = shuffled_delta(weights[0], weights[1], [weights[i] for i in held], growth)
    assert exact_delta(rows[0], rows[1], [rows[i] for i in held], growth) == expected


def test_outcomes_are_laws() -> None:
    rows = response_rows(Fraction(2), 3)
    found = outcomes(rows[0], rows[1], [rows[2], rows[2]], Fraction(1))
    assert sum(one.first for one in found) == sum(one.second for one in found) == 1
    assert all(sum(one.counts) == 3 for one in found)
    assert len(found) == 10, "three reports of three kinds"
    assert sum(count_law([rows[0]]).values()) == 1


def test_the_merged_pair_of_four_options_is_the_channel_with_two_reports_put_together() -> None:
    rows = response_rows(Fraction(3), 4)
    a, b, c = ([row[0], row[1], row[2] + row[3]] for row in rows[:3])
    assert merged_rows(Fraction(3), Fraction(1, 3), Fraction(3), Fraction(3)) == (a, b, c)


@check_all(
    ("claim", "told"),
    [
        (0.9, "false"),
        (1.5, None),
        (2.0, "true"),
        (2.0 * (1 + 1e-9), "true"),
        (2.0 * (1 - 1e-9), "true"),
        (2.1, "loose"),
    ],
)
def test_a_printed_upper_bound_is_judged_by_both_ends(claim: float, told: Verdict | None) -> None:
    assert upper_verdict(claim, 1.0, 2.0) == told


def test_an_undecided_claim_is_told_and_not_judged() -> None:
    row = upper_row("x", 1.5, (1.0, 2.0))
    assert (row.as_published, row.ours, row.verdict) == (None, 2.0, "ours")
    assert "1.5" in row.note
    assert "nothing is proved" in row.note
    false = upper_row("x", 0.5, (1.0, 2.0), "why", lambda: 7.0)
    assert (false.as_published, false.verdict) == (0.5, "false")
    assert "7 times the claimed delta" in false.note
    assert "why" in false.note
