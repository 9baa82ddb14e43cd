"""Table I of the supplement: the padded exponential mechanism, and Algorithm 2's lower bound."""

from __future__ import annotations

import numpy as np

from metricshuffle.accounting.shuffling.clone_bound import ClonePair, epsilon_upper
from metricshuffle.amplification.lower_bound import DataSetLower
from metricshuffle.amplification.padded_exponential_lower import pem_laws
from metricshuffle.randomizers import PaddedExponential
from metricshuffle.report.charts.axis_charts import (
    BLUE,
    DASHED,
    GREEN,
    VERMILLION,
    Axis,
    Curve,
    curves,
)
from metricshuffle_papers.metric_supplement.formulas import algorithm_2_epsilon, padded_rows
from metricshuffle_papers.reproduction import Chart, Item, Reproduction, Row, Settings, Verdict

LINE = (1.0, 2.0, 1.0)
"""Distances D(a,b), D(a,c), D(b,c)."""
TRIPLES = (LINE, (2.0, 2.5, 1.0), (0.3, 1.0, 1.2))
USERS = 60
DELTA = 1e-4
INPUTS = ("a", "b", "c")
REPORTS = ("a", "b", "c", "none")


def _mechanism(ab: float, ac: float, bc: float) -> PaddedExponential:
    return PaddedExponential([[0.0, ab, ac], [ab, 0.0, bc], [ac, bc, 0.0]], 1.0)


def _entries() -> list[Row]:
    printed = padded_rows(*LINE)
    ours = _mechanism(*LINE).rows()
    found = []
    for x, z in np.ndindex(3, 4):
        alike: Verdict = "true" if abs(printed[x, z] - ours[x, z]) <= 1e-12 else "false"
        found.append(
            Row(
                f"x = {INPUTS[x]}, z = {REPORTS[z]}",
                None,
                float(printed[x, z]),
                float(ours[x, z]),
                alike,
                note=f"D = {LINE}",
            )
        )
    return found


def _ratios() -> list[Row]:
    mechanism = _mechanism(*LINE)
    found = []
    for (x, y), allowed in zip(((0, 1), (0, 2), (1, 2)), LINE, strict=True):
        attained = mechanism.local_epsilon(x, y)
        told: Verdict = (
            "true" if allowed * (1.0 - 1e-9) <= attained <= allowed * (1.0 + 1e-12) else "false"
        )
        found.append(
            Row(
                f"largest log ratio of the rows {INPUTS[x]} and {INPUTS[y]}",
                None,
                allowed,
                attained,
                told,
                note="attained",
            )
        )
    return found


def _lower(triple: tuple[float, float, float], users: int) -> float:
    laws = pem_laws(*triple)
    return DataSetLower(lambda _: laws, users).epsilon(DELTA, triple[0])


def _bounds() -> list[Row]:
    found = []
    for ab, ac, bc in TRIPLES:
        printed, every = (
            algorithm_2_epsilon(ab, ac, bc, USERS, DELTA, printed=way).claim
            for way in (True, False)
        )
        note = (
            f"the printed loops miss outcomes; with all of them Algorithm 2 gives {every:.6g}; "
            "ours also looks at others at a and at b"
        )
        found.append(
            Row(
                f"Algorithm 2, D = {(ab, ac, bc)}, n = {USERS}",
                None,
                printed,
                _lower((ab, ac, bc), USERS),
                "loose",
                note=note,
            )
        )
    return found


def _cycle() -> Row:
    places = np.arange(12)
    hops = np.abs(places[:, None] - places)
    whole = PaddedExponential(np.minimum(hops, 12 - hops), 0.5, kept=(3, 4, 9))
    alone = 1.0 / float(padded_rows(0.5, 3.0, 2.5)[0, 0])
    note = (
        f"Table I's N over a, b and c alone is {alone:.5g}, private on those three; more "
        "values need the maximum over all their pairs"
    )
    return Row("N on a cycle of 12 places, a and b neighbours", ours=whole.normaliser, note=note)


def _run(settings: Settings) -> Reproduction:
    counts = (
        (5, 10, 20, 40, 60, 80) if settings.quick else (3, 5, 8, 12, 20, 30, 45, 60, 80, 100, 120)
    )
    drawn: dict[str, list[tuple[float, float]]] = {"printed": [], "lower": [], "upper": []}
    ab, ac, bc = LINE
    for users in counts:
        settings.progress(f"n = {users}")
        drawn["printed"].append((users, algorithm_2_epsilon(*LINE, users, DELTA).claim))
        drawn["lower"].append((users, _lower(LINE, users)))
        drawn["upper"].append(
            (users, epsilon_upper(ClonePair(ab, max(ab, ac), max(ab, bc)), users, DELTA))
        )
    lines = [
        Curve("no more: clone pair (ours)", drawn["upper"], BLUE),
        Curve("no less: all others alike (ours)", drawn["lower"], GREEN),
        Curve("Algorithm 2 with the printed loops", drawn["printed"], VERMILLION, DASHED),
    ]
    chart = Chart(
        "What Algorithm 2 finds",
        curves(lines, Axis("users", True, ",d"), Axis("epsilon")),
        f"D(a,b), D(a,c), D(b,c) = {LINE}, delta = {DELTA:g}. The truth for every "
        "D-private mechanism lies between blue and green.",
    )
    words = (
        "Table I is right: it is a law, it is D-private, and every ratio it may use up it "
        "does use up; Algorithm 2 reads too "
        "little off it.",
        "The table prints formulas, so both columns are computed: from the printed "
        "formulas, and by the library's randomizer.",
        "The printed loops of Algorithm 2 (A in [n], B in [n-1-A], C in [n-1-A-B]) leave "
        "out the outcomes without a report a and those "
        "without an empty report. The lower bound stays true, and is smaller than what the "
        "mechanism shows.",
        "It says that no bound valid for every D-private mechanism can be smaller; it says "
        "nothing about another mechanism.",
    )
    return Reproduction(words, (*_entries(), *_ratios(), *_bounds(), _cycle()), (chart,))


ITEMS = (
    Item(
        "supplement-table-1",
        "WitchHat",
        "Table I",
        "The padded exponential mechanism, and Algorithm 2",
        _run,
    ),
)
