"""Accuracy and cost of private maps and histograms: `python -m benchmarks.maps` (some minutes).

People are those of `simulation.population.clustered_shares`, drawn by
`numpy.random.default_rng(SEED)`: five clusters on a tenth of people who are spread evenly. Each
number is the mean over `runs` simulated releases about the same people: sums with the noise of
everyone's shares, and the estimator of a release (isotonic regression on lines, least squares on
grids, both with shares >= 0 of sum 1; the likeliest shares for single reports). Earth mover's
distances are exact. The target is epsilon 1 for a tenth of the range and less for less, delta 1e-6.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from metricshuffle.encodings.packed_vectors import SEALED_BITS
from metricshuffle.errors import MetricShuffleError
from metricshuffle.estimation.inversion import Inversion
from metricshuffle.estimation.likelihood import fit_likelihood
from metricshuffle.numerics.types import Floats
from metricshuffle.planning import Plan, plan
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.features import Cells, ShiftedBoxes
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.queries.histogram import Histogram
from metricshuffle.queries.query import Query
from metricshuffle.queries.user_queries import UserHistogram
from metricshuffle.simulation.fast_draws import ReportLaws
from metricshuffle.simulation.population import CLUSTER_SIZES, Population, clustered_shares
from metricshuffle.simulation.simulated_releases import crowd_of, released_shares
from metricshuffle.spaces import Grid, Integers, Space, earth_mover, users_of

SEED = 7
PEOPLE = (500, 2_000, 100_000)
DELTA = 1e-6
NEAR = 0.1
"""Fraction of the range that is protected at epsilon 1."""
ITEMS = 20
FLOORS = (2.0, 5.0, 10.0)
CELL = 100.0
FEW_RUNS = 2
"""Runs for single reports on large spaces.

There the likeliest shares take 10 s and their errors hardly vary.
"""


@dataclass(frozen=True)
class Case:
    """Space, and the unit of its distances: a fraction of the range, or metres."""

    name: str
    domain: Integers | Grid
    runs: int

    @property
    def range(self) -> float:
        """Length of a line, or of the side of a grid."""
        return (
            float(self.domain.high - self.domain.low)
            if isinstance(self.domain, Integers)
            else self.domain.width * self.domain.cell
        )

    def query(self, items: int = 1) -> Query:
        return Histogram(self.domain) if items == 1 else UserHistogram(users_of(self.domain, items))

    def target(self, part: float = NEAR) -> Target:
        """Epsilon 1 for a tenth of the range, stated for this part of it, or for one cell.

        One cell is used if that is more.
        """
        if isinstance(self.domain, Grid):
            part = max(part, self.domain.cell / self.range)
        return Target(epsilon=part / NEAR, delta=DELTA, distance=part * self.range)

    def held(self, query: Query, people: int) -> Population:
        generator = np.random.default_rng(SEED)
        return crowd_of(
            query, clustered_shares(Space.of(self.domain), generator), people, generator
        )

    def told(self, distance: float) -> str:
        part = distance / self.range if isinstance(self.domain, Integers) else distance
        return f"{float(f'{part:.2g}'):g}{'' if isinstance(self.domain, Integers) else ' m'}"


CASES = (
    Case("line of 64", Integers(0, 63), 40),
    Case("line of 1,000", Integers(0, 999), 40),
    Case("8 x 8 cells", Grid(8, 8, CELL, "m"), 40),
    Case("32 x 32 cells", Grid(32, 32, CELL, "m"), 12),
)


@dataclass(frozen=True)
class Accuracy:
    """Error of one method: mean earth mover's distance and mean absolute error of a share.

    The distance has its standard error.
    """

    case: Case
    people: int
    way: str
    how: str
    distance: float
    standard_error: float
    share: float
    epsilon_alone: float
    """Epsilon of one report, or of a person's messages, at a tenth of the range."""


def accuracy(
    cases: tuple[Case, ...] = CASES, people: tuple[int, ...] = PEOPLE
) -> Iterator[Accuracy]:
    """Yield single reports, and vectors with all or half of the people honest, or with a floor.

    At last with a curator's noise, which has the law of all people's noise if all are honest.
    """
    for case in cases:
        for count in people:
            for name in (
                "k-ary-randomized-response",
                "bounded-geometric" if isinstance(case.domain, Integers) else "planar-geometric",
            ):
                found = single(case, count, name)
                if found is not None:
                    yield found
            planned = plan_of(case, count)
            yield vectors(case, count, "all honest", planned)
            yield vectors(case, count, "half honest", plan_of(case, count, honest=count // 2))
            yield vectors(case, count, "floor", plan_of(case, count, floor=True))
            yield vectors(case, count, "curator", planned, trusted="curator")


def plan_of(
    case: Case,
    people: int,
    *,
    honest: int | None = None,
    floor: bool = False,
    alone: float | None = None,
    items: int = 1,
    part: float = NEAR,
) -> Plan:
    """Planner's choice of features, for people who are known to be clustered."""
    return plan(
        case.query(items),
        case.target(part),
        people,
        honest,
        floor=floor,
        max_local_epsilon=alone,
        protocols=["noisy-vectors"],
        spread="smooth",
    )


def vectors(
    case: Case, people: int, way: str, planned: Plan, trusted: str = "shuffler"
) -> Accuracy:
    """Accuracy of the plan's choice, or of its curator."""
    query = planned.query
    chosen = (
        planned.choice
        if trusted == "shuffler"
        else next(offer for offer in planned.candidates if offer.trusted == trusted)
    )
    protocol = chosen.mechanism
    assert isinstance(protocol, NoisyVectors)
    held = case.held(query, people)
    generator = np.random.default_rng(SEED + 1)
    released = released_shares(protocol, query, held, case.runs, generator)
    return _measured(
        case, people, way, protocol.encoding, released, held.truth, chosen.local_epsilon
    )


def single(case: Case, people: int, name: str) -> Accuracy | None:
    """Accuracy of one report each through a shuffler; None if it cannot meet the target."""
    query = case.query()
    try:
        planned = plan(query, case.target(), people, people, protocols=[name])
    except MetricShuffleError:
        return None
    protocol = planned.choice.mechanism
    assert isinstance(protocol, Frequencies)
    held = case.held(query, people)
    generator = np.random.default_rng(SEED + 1)
    inversion = Inversion.of(protocol.randomizer)
    released = []
    laws = ReportLaws.of(inversion.rows)
    for _ in range(FEW_RUNS if len(held.sampled) > 100 else case.runs):
        counts = np.maximum(np.rint(laws.counts(held.sampled, generator)), 0.0).astype(np.int64)
        released.append(fit_likelihood(inversion.rows, counts).frequencies)
    return _measured(
        case,
        people,
        "one report each",
        name,
        np.stack(released),
        held.truth,
        planned.choice.local_epsilon,
    )


def _measured(
    case: Case, people: int, way: str, how: str, released: Floats, truth: Floats, alone: float
) -> Accuracy:
    distances = np.array(
        [earth_mover(Space.of(case.domain), row, truth).distance for row in released]
    )
    spread = (
        float(distances.std(ddof=1) / np.sqrt(len(distances)))
        if len(distances) > 1
        else float("nan")
    )
    return Accuracy(
        case,
        people,
        way,
        how,
        float(distances.mean()),
        spread,
        float(np.abs(released - truth).mean()),
        alone,
    )


def floors(people: int = 2_000) -> Iterator[Accuracy]:
    """Accuracy on a line of 64 by the fallback's epsilon; at last without a floor."""
    for epsilon in FLOORS:
        yield vectors(
            CASES[0],
            people,
            f"floor {epsilon:g}",
            plan_of(CASES[0], people, floor=True, alone=epsilon),
        )
    yield vectors(CASES[0], people, "no floor", plan_of(CASES[0], people))


def by_width(people: int = 100_000, runs: int = 4) -> Iterator[tuple[float, str, float]]:
    """Yield the width of clusters in cells, features, and mean earth mover's distance, 32 x 32.

    Widths are standard deviations: as narrow as above, and twice as wide;
    `numpy.random.default_rng(3)` draws five centres 4 cells or more from the edges.
    """
    case = CASES[-1]
    space = Space.of(CASES[-1].domain)
    planned = plan_of(case, people).choice.mechanism
    assert isinstance(planned, NoisyVectors)
    cells = space.domain.all_values()
    middles = np.random.default_rng(3).uniform(4.0, 28.0, (5, 2))
    squares = ((np.asarray(cells, dtype=np.float64)[:, None] - middles) ** 2).sum(axis=2)
    wide = np.exp(-0.5 * squares / 2.5**2) @ CLUSTER_SIZES + 1e-6
    narrow = clustered_shares(space, np.random.default_rng(SEED))
    for cells_wide, shares in ((1.24, narrow), (2.5, wide)):
        for features in (ShiftedBoxes(3), Cells()):
            weights = features.weights(space)
            factor = case.target().slope / features.slope(space, weights)
            protocol = planned.model_copy(
                update={"features": features, "coordinates": len(weights), "factor": factor}
            )
            held = crowd_of(case.query(), shares, people, np.random.default_rng(SEED))
            released = released_shares(
                protocol, case.query(), held, runs, np.random.default_rng(SEED + 1)
            )
            yield (
                cells_wide,
                str(features),
                _measured(case, people, "", "", released, held.truth, 0.0).distance,
            )


@dataclass(frozen=True)
class Cost:
    """Size of what a person sends for a plan."""

    case: str
    people: int
    features: str
    coordinates: int
    bits: int
    together: int
    shares: int
    messages: int
    kilobytes: float
    sealed: float
    """Size with the overhead of sealing each message."""
    added: float
    """Size for an aggregator, in kB."""


def costs() -> Iterator[Cost]:
    """Yield costs for 20 items each, with mixing for a total epsilon of 10.

    That is a move of the whole range.
    """
    line, long, _, grid = CASES
    for case, people in ((long, 500), (line, 2_000), (grid, 2_000), (grid, 100_000)):
        protocol = plan_of(case, people, items=ITEMS, part=1.0).choice.mechanism
        assert isinstance(protocol, NoisyVectors)
        packed = protocol.packed
        yield Cost(
            case.name,
            people,
            str(protocol.features),
            protocol.coordinates,
            packed.bits,
            packed.together,
            packed.shares,
            packed.messages_per_user,
            packed.bits_per_user / 8e3,
            (packed.bits_per_user + packed.messages_per_user * SEALED_BITS) / 8e3,
            protocol.coordinates * packed.bits / 8e3,
        )


def accuracy_table(found: list[Accuracy]) -> str:
    """Markdown table with a row for each case and number of people."""
    ways = ("one report each", "all honest", "half honest", "floor", "curator")
    heads = (
        "k-ary response",
        "geometric noise",
        "vectors",
        "half honest",
        "with the floor",
        "curator",
    )
    lines = [f"| space | people | {' | '.join(heads)} |", f"|---|---|{'---|' * len(heads)}"]
    for case, people in dict.fromkeys((one.case, one.people) for one in found):
        here = [one for one in found if (one.case, one.people) == (case, people)]
        one_report = {one.how: one for one in here if one.way == ways[0]}
        cells = [_cell(one_report.get("k-ary-randomized-response"))]
        cells.append(
            _cell(
                next((one for name, one in one_report.items() if name.endswith("geometric")), None)
            )
        )
        cells += [
            _cell(next((one for one in here if one.way == way), None), features=way != "curator")
            for way in ways[1:]
        ]
        lines.append(f"| {case.name} | {people:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(one: Accuracy | None, features: bool = False) -> str:
    if one is None:
        return "-"
    how = f" ({one.how.removesuffix(', no floor')})" if features else ""
    return f"{one.case.told(one.distance)} / {100.0 * one.share:.2g} %{how}"


def floor_table(found: list[Accuracy]) -> str:
    lines = [
        "| epsilon if the shuffler colludes | earth mover's distance | error of a share |",
        "|---|---|---|",
    ]
    for one in found:
        alone = (
            f"{one.epsilon_alone:.3g}"
            if one.way != "no floor"
            else f"{one.epsilon_alone:.3g} (no floor)"
        )
        lines.append(f"| {alone} | {one.case.told(one.distance)} | {100.0 * one.share:.2g} % |")
    return "\n".join(lines)


def cost_table(found: list[Cost]) -> str:
    lines = [
        "| space | people | features | numbers | bits | together | shares | messages | kB "
        "| kB sealed | kB to somebody who adds |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in found:
        lines.append(
            f"| {one.case} | {one.people:,} | {one.features} | {one.coordinates} | "
            f"{one.bits} | {one.together} | {one.shares} | "
            f"{one.messages:,} | {one.kilobytes:.1f} | {one.sealed:.1f} | {one.added:.2f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    start = time.perf_counter()
    listed = []
    for one in accuracy():
        listed.append(one)
        off = (
            f"{one.case.told(one.distance)} +- {one.case.told(one.standard_error)}, {one.share:.2g}"
        )
        print(
            f"{time.perf_counter() - start:6.0f} s  {one.case.name}, {one.people:,}, "
            f"{one.way} ({one.how}): {off}",
            file=sys.stderr,
        )
    print(
        accuracy_table(listed), floor_table(list(floors())), cost_table(list(costs())), sep="\n\n"
    )
    for wide, features, distance in by_width():
        print(f"clusters {wide:g} cells wide, {features}: {distance:.1f} m")
