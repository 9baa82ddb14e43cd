"""Items of `reproduce` for Wang24's appendix: rows, verdicts, and the numbers behind "false"."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import pytest
from packages.papers.tests.quick_items import check_charts, found, items_of, one_row, rows_of
from tests.oracles import explicit_channels as channels
from tests.oracles.same_others import count_laws, divergence, grouped
from tests.oracles.shuffled_brute_force import every_data_set
from tests.tables import check_all

from metricshuffle.randomizers import HadamardResponse, KaryRandomizedResponse, Randomizer
from metricshuffle_papers.reproduction import Item, Row

ITEMS = items_of("Wang24")


def numbers(row: Row) -> tuple[float, float]:
    assert row.as_published is not None
    assert row.ours is not None
    return row.as_published, row.ours


SLOW = ("variation-ratio-bounds",)  # seconds


@pytest.mark.parametrize(
    "item",
    [
        pytest.param(item, marks=[pytest.mark.slow] * (name in SLOW), id=item.name)
        for name, item in ITEMS.items()
    ],
)
def test_every_item_is_complete(item: Item) -> None:
    result = found(item.name)
    assert item.paper == "Wang24"
    assert not item.simulated
    assert len({row.label for row in result.rows}) == len(result.rows) > 0
    for row in result.rows:
        assert all(
            math.isfinite(value) for value in (row.as_published, row.ours) if value is not None
        )
        assert row.published is None, "the appendix prints no numbers"
        assert row.verdict == "ours" or (row.ours is not None and row.as_published is not None)
        assert row.note or row.verdict != "false"
    assert all(words.endswith(".") for words in result.words)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in ITEMS]
)
def test_every_chart_can_be_drawn(name: str) -> None:
    check_charts(name)


@pytest.mark.slow
def test_items_refer_to_items_that_exist() -> None:
    words = (
        " ".join(words for name in ITEMS for words in found(name).words)
        .replace("(", " ")
        .replace(")", " ")
        .split()
    )
    assert {word.rstrip(".,:;") for word in words if word.startswith("variation-ratio-")} <= set(
        ITEMS
    )


# The counterexample


def test_the_counterexample_adds_up() -> None:
    name = "variation-ratio-counterexample"
    rows = channels.randomized_response(Fraction(3), 4)
    truth = every_data_set(channels.whole_weights(rows), 0, 1, 2, Fraction(12, 5))
    assert (truth[2,], truth[0,]) == (Fraction(1, 36), Fraction(1, 20))
    third = one_row(name, "holds a third value c")
    own = one_row(name, "holds a as well")
    assert numbers(third) == pytest.approx((1 / 60, 1 / 36), rel=1e-12)
    assert numbers(own) == pytest.approx((1 / 60, 1 / 20), rel=1e-12)
    assert third.verdict == own.verdict == "false"
    assert math.fsum(row.ours or 0.0 for row in rows_of(name, "other at c: ")) == pytest.approx(
        1 / 36, rel=1e-12
    )
    assert math.fsum(row.ours or 0.0 for row in rows_of(name, "other at a: ")) == pytest.approx(
        1 / 20, rel=1e-12
    )
    assert math.fsum(
        row.as_published or 0.0 for row in rows_of(name, "merged reports")
    ) == pytest.approx(1 / 60, rel=1e-12)
    assert len(rows_of(name, "other at c: ")) == len(rows_of(name, "other at a: ")) == 10
    assert (one_row(name, "the library's bound").ours or 0.0) >= 1 / 20
    assert all(part in found(name).words[0] for part in ("1/60", "1/36", "1/20"))
    assert "10 - 2.4 x 4 = 0.4" in one_row(name, "other at c: reports {a, c}").note
    assert "14 - 2.4 x 6 = -0.4" in one_row(name, "merged reports {favours a, neither}").note


# Theorems 4.7 and 4.8


@check_all(
    ("options", "local", "users", "delta"),
    [
        (4, 1.0, 100, 1e-4),
        (10, 2.0, 100, 1e-5),
        (16, 3.0, 100, 1e-4),
        (3, 3.0, 20, 1e-4),
        (3, 5.0, 100, 1e-4),
    ],
)
def test_a_false_bound_is_below_what_every_vector_of_counts_shows(
    options: int, local: float, users: int, delta: float
) -> None:
    row = one_row("variation-ratio-theorem-4-8", f"{options}-RR, eps0 = {local:g}, n = {users}, ")
    assert row.verdict == "false"
    claim, ours = numbers(row)
    laws = KaryRandomizedResponse(options, local).rows()
    assert (
        max(
            divergence(*count_laws(laws[0], laws[1], held, users), claim)
            for held in (laws[0], laws[2])
        )
        > 1.01 * delta
    )
    assert (
        max(
            divergence(*count_laws(laws[0], laws[1], held, users), ours)
            for held in (laws[0], laws[2])
        )
        <= delta
    )


def test_two_options_are_loose_and_appendix_e_is_false() -> None:
    """For two options the published pair is sound, and looser than the exact answer."""
    name = "variation-ratio-theorem-4-8"
    assert one_row(name, "2-RR").verdict == "loose"
    assert {row.verdict for row in rows_of(name, "-RR") if not row.label.startswith("2-RR")} == {
        "false"
    }
    for row in rows_of(name, "Appendix E"):
        claim, ours = numbers(row)
        assert row.verdict == "false"
        assert claim <= 0.0 < ours == pytest.approx(0.0264537, abs=5.1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "randomizer"),
    [
        ("4-RR", KaryRandomizedResponse(4, 1.0)),
        ("16-RR", KaryRandomizedResponse(16, 1.0)),
        ("Hadamard response", HadamardResponse(7, 1.0, 1)),
    ],
)
def test_a_false_bound_over_n_is_false_by_counting(name: str, randomizer: Randomizer) -> None:
    row = next(
        row
        for row in rows_of("variation-ratio-bounds", f"Theorem 4.7, {name}")
        if row.label.endswith("n = 100")
    )
    laws, (claim, ours) = randomizer.rows(), numbers(row)
    assert row.verdict == "false"
    held = [law for law in laws[:3] if len(grouped([laws[0], laws[1], law])[0]) <= 4]
    assert max(divergence(*count_laws(laws[0], laws[1], one, 100), claim) for one in held) > 1e-6
    assert max(divergence(*count_laws(laws[0], laws[1], one, 100), ours) for one in held) <= 1e-6


@pytest.mark.thorough
def test_bounds_over_n_are_in_order() -> None:
    rows = rows_of("variation-ratio-bounds", "Theorem 4.7")
    assert len(rows) == 12 * 3
    for row in rows:
        if row.verdict in ("true", "loose"):
            claim, ours = numbers(row)
            assert claim >= ours * (1 - 1e-6)
    assert {row.verdict for row in rows if "general" in row.label} == {"true"}
    assert {row.verdict for row in rows if "PrivKV" in row.label or "hash" in row.label} == {
        "loose"
    }
    for first, second in pairwise(rows):
        if first.label.rsplit(", n", 1)[0] == second.label.rsplit(", n", 1)[0]:
            assert (first.ours or 0.0) > (second.ours or 0.0), "more people hide more"
    for row in rows_of("variation-ratio-bounds", "Theorem 5.1"):
        claim, ours = numbers(row)
        assert ours >= claim * (1 - 1e-6)
        assert row.verdict == ("true" if "3-RR" in row.label else "loose")


# Theorems 4.2 and 4.3


def test_theorem_4_2_is_below_an_explicit_data_set() -> None:
    verdicts = [row.verdict for row in found("variation-ratio-theorem-4-2").rows]
    assert verdicts == ["false", "false", "false", "loose", "loose", "loose"]
    assert numbers(one_row("variation-ratio-theorem-4-2", "p = 7.428"))[0] == pytest.approx(
        0.149514, abs=5e-5
    )
    assert "needs Omega" in one_row("variation-ratio-theorem-4-2", "without its conditions").note
    for row in found("variation-ratio-theorem-4-2").rows:
        claim, ours = numbers(row)
        assert (claim < ours) == (row.verdict == "false")


def test_theorem_4_3_is_false_as_printed_and_loose_as_derived() -> None:
    name = "variation-ratio-theorem-4-3"
    assert one_row(name, "printed at the end of Appendix G: p = 1.05").verdict == "false"
    assert {row.verdict for row in rows_of(name, "as derived")} == {"loose"}
    claim, ours = numbers(one_row(name, "printed at the end of Appendix G: p = 1.05"))
    assert claim < 0.5 * ours
    derived, printed = (
        one_row(name, f"{part}: p = 1.5").as_published
        for part in ("Equations 11 and 12", "Appendix G")
    )
    assert (derived, printed) == pytest.approx((0.02381, 0.00848), abs=5.1e-6)


# Proposition I.1 and Table 6


def test_proposition_i_1_is_true_and_algorithm_3_is_not() -> None:
    name = "variation-ratio-proposition-i-1"
    assert {row.verdict for row in rows_of(name, "Proposition I.1")} == {"true"}
    assert all(
        abs(claim - truth) < 1e-12
        for claim, truth in map(numbers, rows_of(name, "Proposition I.1"))
    )
    assert {row.verdict for row in rows_of(name, "Algorithm 3")} == {"false"}
    assert numbers(rows_of(name, "Algorithm 3")[0]) == pytest.approx(
        (0.123643, 0.083908), abs=5.1e-7
    )
    assert numbers(rows_of(name, "Algorithm 3")[1]) == pytest.approx(
        (0.020597, 0.028235), abs=5.1e-7
    )
    assert numbers(one_row(name, "P||Q: p = 3, beta = 0.3333"))[1] == pytest.approx(
        1 / 60, rel=1e-12
    )


@check_all(
    ("part", "rows"),
    [
        ("Table 6, general mechanisms", channels.randomized_response(Fraction(9, 4), 2)),
        (
            "Table 6, k-subset exponential, s = 2",
            channels.subset_exponential(Fraction(9, 4), 6, 2, 2),
        ),
        (
            "Table 6, k-subset exponential, s = 3",
            channels.subset_exponential(Fraction(9, 4), 6, 3, 2),
        ),
        (
            "Table 6, PrivKV, s = 1",
            channels.priv_kv(Fraction(math.exp(0.5)), Fraction(math.exp(0.6)), 3, 1),
        ),
        ("code, RAPPOR", channels.bitwise(Fraction(3, 5), Fraction(2, 5), 4, range(4))),
        (
            "code, flipped one-hot vectors",
            channels.bitwise(Fraction(3, 4), Fraction(1, 4), 4, range(4)),
        ),
        ("code, mixDUMP", channels.randomized_response(Fraction(28, 3), 5)),
    ],
)
def test_parameters_are_those_of_the_explicit_channel(part: str, rows: channels.Rows) -> None:
    ours = {
        row.label.rsplit(": ")[-1]: row.ours for row in rows_of("variation-ratio-table-6", part)
    }
    assert ours["p"] == pytest.approx(float(channels.largest_ratio(rows)), rel=1e-9)
    assert ours["beta"] == pytest.approx(float(channels.variation(rows)), rel=1e-9)
    assert ours["q"] == pytest.approx(float(channels.largest_ratio(rows)), rel=1e-9)


def test_table_6_is_never_too_small() -> None:
    for row in rows_of("variation-ratio-table-6", "Table 6"):
        printed, ours = numbers(row)
        assert row.verdict in ("true", "loose")
        assert printed >= ours * (1 - 1e-9)
    false = {row.label for row in found("variation-ratio-table-6").rows if row.verdict == "false"}
    assert len(false) == 4
    assert all(
        "dummies" not in label and ("other people" in label or "WitchHat" in label)
        for label in false
    )
    impossible = one_row("variation-ratio-table-6", "PrivKV, s = 2, d = 2, 0.5 + 0.6: beta")
    p = numbers(one_row("variation-ratio-table-6", "PrivKV, s = 2, d = 2, 0.5 + 0.6: p"))[0]
    assert numbers(impossible)[0] > (p - 1) / (p + 1) >= numbers(impossible)[1]
