"""`solve`: metric, randomizer, the guarantee for every pair, and use in a task."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles.shuffled_brute_force import every_data_set
from tests.tables import check_all

import metricshuffle as ms
from metricshuffle.accounting.shuffling.clone_bound import ClonePair, epsilon_upper
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.randomizers import BoundedGeometric, Channel, KaryRandomizedResponse, Randomizer
from metricshuffle.solving.local_metric import LineTarget, algorithm_1n
from metricshuffle.solving.randomizer_search import PairwisePromise, report_error, share_error
from metricshuffle.solving.solution import allowed_text
from metricshuffle.spaces import Circle, Clustered, Grid, Integers, Interval, Matrix, Space, Tree

WEEK = Space(Integers(0, 6), Circle(7))
TREE = Tree([-1, 0, 0, 1, 1])
SPACES: dict[str, tuple[Any, Target]] = {
    "line": (Integers(0, 4), Target(0.3, 1e-6, 2.0)),
    "circle": (WEEK, Target(0.3, 1e-6, 2.0)),
    "grid": (Grid(3, 2, 0.5), Target(0.3, 1e-6, 1.0)),
    "tree": (TREE, Target(0.3, 1e-6, 2.0)),
    "table": (Matrix([[0, 1, 2.5], [1, 0, 2], [2.5, 2, 0]]), Target(0.3, 1e-6, 2.0)),
    "clusters": (Clustered(2, 2, 0.25), Target(0.3, 1e-6, 1.0)),
}


@pytest.fixture(scope="module")
def finding() -> ms.SolvedMetric:
    return ms.solve(Integers(0, 8), Target(0.1, 1e-6, 1.0), 100)


def test_the_algorithm_that_allows_most_wins_where_others_say_nothing(
    finding: ms.SolvedMetric,
) -> None:
    """1N certifies 2.6 times the target for near values; Corollaries 1 and 2 only the target."""
    assert finding.algorithm == "1N"
    assert finding.amplifies
    assert [one.algorithm for one in finding.allowed] == ["1N", "1", "3"]
    assert [one.amplifies for one in finding.allowed] == [True, False, False]
    most = max(float(one.closed[0]) for one in finding.winner.found.solutions)
    assert most == pytest.approx(0.26068, abs=1e-4)
    assert finding.local_epsilon() > 0.25
    assert "Algorithm 1N, which allows the most" in finding.why()
    assert "Shuffling buys nothing" not in finding.explain()


def test_golden_range_of_the_nine_points() -> None:
    """Algorithm 1: 2.7090 to 5.9880 for nine points, D# = |x-y|, n = 1e5, delta = 1e-6."""
    found = ms.solve(
        Interval(0, 1), Target(1.0, 1e-6, 1.0), 100_000, step=0.125, algorithm="1", grid=3
    ).winner.found
    assert found.low == pytest.approx(2.7090, abs=5e-5)
    assert found.high == pytest.approx(5.9880, abs=5e-5)


def kept(solved: ms.SolvedMetric, randomizer: Randomizer) -> None:
    """Pair by pair, by `amplify` and by what tasks are verified with."""
    promise = PairwisePromise(
        solved.shape,
        solved.target.epsilon,
        solved.target.distance,
        solved.target.delta,
        solved.honest,
    )
    assert promise.kept_by(randomizer)
    amplified = ms.amplify(randomizer, solved.honest)
    for row in solved.certified:
        own = min(promise.steps_of(randomizer, row.distance), amplified.distance)
        assert amplified.epsilon(solved.target.delta, own).upper <= row.promised * (1 + 1e-9)
        assert row.randomizer_certified is not None
        assert row.randomizer_certified <= row.promised * (1 + 1e-12)
        assert row.certified <= row.promised * (1 + 1e-12)


@pytest.mark.parametrize(
    "name",
    [
        "line",
        "circle",
        "grid",
        "tree",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("table", "clusters")),
    ],
)
def test_every_space_gets_a_metric_and_a_randomizer_that_keep_the_promise(name: str) -> None:
    space, target = SPACES[name]
    solved = ms.solve(space, target, 2000, grid=6)
    table = solved.table()
    reaches = table.max(axis=1)
    targets = 0.3 / target.distance * solved.shape.table(solved.shape.distances)
    for a in range(len(table)):
        for b in range(a):
            assert epsilon_upper(
                ClonePair(table[a, b], reaches[a], reaches[b]), 2000, 1e-6
            ) <= targets[a, b] * (1 + 1e-12)
    assert solved.randomizer is not None
    kept(solved, solved.randomizer)
    assert (
        solved.share_error < solved.winner.error
    )  # its own laws allow more than its local metric alone
    assert 0 < solved.report_error < solved.shape.distances[-1]
    document = json.loads(solved.to_json())
    assert document["algorithm"] == "1N"
    assert np.array(document["metric"]["matrix"]) == pytest.approx(table)


@pytest.mark.parametrize("least", ["shares", "report"])
@pytest.mark.parametrize(
    "space",
    [Integers(0, 2), Space(Integers(0, 3), Circle(4)), pytest.param(TREE, marks=pytest.mark.slow)],
    ids=["line", "circle", "tree"],
)
def test_no_data_set_of_few_people_breaks_the_promise(space: Space, least: str) -> None:
    """Exact fractions: every pair, and whatever the others hold."""
    users = 3
    target = Target(0.5, 0.02, 1.0)
    solved = ms.solve(space, target, users, least=least, grid=4)  # type: ignore[arg-type]
    randomizer = solved.randomizer
    assert randomizer is not None
    rows = (
        Channel(randomizer.rows()).weights
        if not isinstance(randomizer, Channel)
        else randomizer.weights
    )
    weights = [[int(weight) for weight in row] for row in rows]
    distances = solved.shape.table(solved.shape.distances)
    worst = Fraction(0)
    for a in range(len(weights)):
        for b in range(len(weights)):
            if a != b:
                growth = Fraction(math.exp(0.5 * distances[a, b]))
                worst = max(worst, *every_data_set(weights, a, b, users, growth).values())
    assert float(worst) <= 0.02 * (1 + 1e-9)
    assert float(worst) >= 0.02 * 0.25  # it is not much too careful either


def test_what_is_to_err_least_is_chosen() -> None:
    shares, report = (
        ms.solve(Integers(0, 5), Target(0.1, 1e-6, 1.0), 10_000, least=least, grid=3)
        for least in ("shares", "report")
    )
    assert shares.share_error < report.share_error
    assert report.report_error < shares.report_error
    assert isinstance(shares.randomizer, KaryRandomizedResponse)


def test_the_randomizer_travels_to_a_task_and_back(tmp_path: Path) -> None:
    file = tmp_path / "randomizer.json"
    target = Target(0.2, 1e-6, 2.0)
    solved = ms.solve(Integers(0, 4), target, 100, least="report", grid=3)
    solved.save(str(file))
    loaded = ms.load_randomizer(str(file))
    assert loaded == solved.randomizer
    assert isinstance(loaded, Channel)
    made = ms.plan(ms.Histogram(Integers(0, 4)), target, 100, randomizer=loaded)
    assert made.choice.protocol == "own-randomizer"
    # its shares of least squares may be negative; those of the plan can be true, and are at most as
    # far off as shares can be
    assert made.choice.expected_error < min(solved.share_error, 2.0 / 5.0)
    assert isinstance(made.protocol, Frequencies)
    task = ms.Task.from_json(made.task.to_json())
    task.verify()
    release = task.estimate(task.shuffle(task.randomize([3] * 60 + [1] * 40)))
    assert release.reports == 100
    with pytest.raises(ms.InputError, match="does not keep the target"):
        ms.plan(ms.Histogram(Integers(0, 4)), Target(0.18, 1e-6, 2.0), 100, randomizer=loaded)
    with pytest.raises(ms.InputError, match="5 inputs for a histogram of 10 values"):
        ms.plan(ms.Histogram(Integers(0, 9)), target, 100, randomizer=loaded)
    with pytest.raises(ms.InputError, match="cannot be combined with protocols"):
        ms.plan(ms.Histogram(Integers(0, 4)), target, 100, randomizer=loaded, protocols=["rappor"])


def test_grids_and_labels_can_be_planned(tmp_path: Path) -> None:
    grid = Grid(3, 2, 0.5)
    target = Target(0.3, 1e-6, 1.0)
    solved = ms.solve(grid, target, 2000, least="report", grid=4)
    assert isinstance(solved.randomizer, Channel)
    made = ms.plan(ms.Histogram(grid), target, 2000, randomizer=solved.randomizer)
    made.task.verify()  # cells half a unit and a diagonal apart are no whole steps
    tree = ms.solve(TREE, Target(0.3, 1e-6, 2.0), 2000, least="report", grid=4)
    far = max(row.randomizer_certified or 0.0 for row in tree.certified)
    labels = ms.Histogram(ms.Categories(list("abcde")))
    ms.plan(labels, Target(far * 1.01, 1e-6, 1.0), 2000, randomizer=tree.randomizer).task.verify()


def test_nobody_to_hide_among_leaves_the_target() -> None:
    solved = ms.solve(Integers(0, 4), Target(0.5, 1e-6, 2.0), 1, grid=4)
    assert not solved.amplifies
    assert "shuffling buys nothing" in solved.why()
    assert solved.local_epsilon() == pytest.approx(0.5, rel=1e-4)
    assert solved.randomizer is not None
    kept(solved, solved.randomizer)


def test_two_values_have_the_exact_answer() -> None:
    solved = ms.solve(Integers(0, 1), Target(0.2, 1e-6, 1.0), 500, grid=2)
    assert solved.randomizer is not None
    kept(solved, solved.randomizer)
    assert solved.certified[0].randomizer_certified == pytest.approx(0.2, rel=0.01)


@pytest.mark.slow
def test_only_honest_reports_count() -> None:
    half, all_of = (
        ms.solve(Integers(0, 3), Target(0.2, 1e-6, 1.0), 2000, honest, grid=3)
        for honest in ("50%", None)
    )
    assert half.honest == 1000
    assert half.local_epsilon() < all_of.local_epsilon()
    assert half.share_error > all_of.share_error


@pytest.mark.slow
def test_many_values_on_a_line_have_geometric_noise() -> None:
    solved = ms.solve(Integers(0, 300), Target(1.0, 1e-6, 300.0), 5000, grid=2)
    assert isinstance(solved.randomizer, BoundedGeometric)
    assert solved.randomizer.rate > 1 / 300


def test_too_many_values_have_a_metric_and_no_randomizer(tmp_path: Path) -> None:
    solved = ms.solve(
        Integers(0, 10_000), Target(1.0, 1e-6, 10_000.0), 100_000, algorithm="1", grid=2
    )
    assert solved.randomizer is None
    assert "No randomizer was built" in solved.why()
    assert solved.certified[0].randomizer_certified is None
    assert json.loads(solved.to_json())["randomizer"] is None
    with pytest.raises(ms.InputError, match="no randomizer to save"):
        solved.save(str(tmp_path / "none.json"))


def test_a_promise_of_nothing_needs_no_randomizer() -> None:
    solved = ms.solve(Integers(0, 4), Target(900.0, 1e-6, 1.0), 10, grid=2)
    assert solved.randomizer is None
    assert "multiples of 2^-63" in solved.why()


def test_points_at_distance_zero_are_not_told_apart() -> None:
    solved = ms.solve(
        Matrix([[0, 0, 1], [0, 0, 1], [1, 1, 0]]), Target(0.3, 1e-6, 1.0), 2000, grid=3
    )
    assert solved.table()[0, 1] == 0.0
    if solved.randomizer is not None:
        assert isinstance(solved.randomizer, Channel)
        assert solved.randomizer.local_epsilon(0, 1) == 0.0
    assert solved.share_error == math.inf


def test_errors_by_hand() -> None:
    rows = np.array([[0.75, 0.25], [0.25, 0.75]])
    assert share_error(rows, 100) == pytest.approx(
        math.sqrt(2 / math.pi) * math.sqrt((0.5 * (1.5**2 + 0.5**2) - 0.5) / 100)
    )
    assert report_error(rows, np.array([[0.0, 3.0], [3.0, 0.0]])) == pytest.approx(0.75)
    assert share_error(np.full((2, 2), 0.5), 10) == math.inf
    assert (allowed_text(0.26068), allowed_text(0.1 * (1 - 1e-15)), allowed_text(0.0)) == (
        "0.2606",
        "0.1",
        "0",
    )


@check_all(
    ("changes", "told"),
    [
        ({"target": Target(1.0, 1e-6, 1.0, "flat")}, "in proportion to the distance"),
        ({"target": Target(1.0, 0.0, 1.0)}, "delta must be > 0"),
        ({"target": Target(1.0, 1e-6, 0.5)}, "the least between two values"),
        ({"target": "strict"}, "needs a Target"),
        ({"space": Interval(0, 1)}, "give a step"),
        ({"space": Grid(2, 2), "step": 1.0}, "step is for numbers"),
        ({"space": Circle(24)}, "say which there are"),
        ({"space": 7}, "needs a Space"),
        ({"space": Grid(200, 200)}, "at most 10,000 cells"),
        ({"space": Integers(0, 10**6)}, "at most 10,000"),
        ({"space": Space(Integers(0, 2000), Circle(24))}, "at most 1,024 values"),
        ({"users": 0}, "whole number >= 1"),
        ({"honest": 20}, "cannot exceed users"),
        ({"algorithm": "2"}, "one of all, 1, 3, 1N"),
        ({"least": "noise"}, "shares or report"),
        ({"grid": 0}, "grid"),
    ],
)
def test_wrong_arguments_are_refused_in_a_sentence(changes: dict[str, object], told: str) -> None:
    given: dict[str, object] = {
        "space": Integers(0, 4),
        "target": Target(1.0, 1e-6, 1.0),
        "users": 10,
        **changes,
    }
    with pytest.raises(ms.InputError, match=told):
        ms.solve(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        '{"kind": "nothing"}',
        '{"kind": "channel"}',
        '{"kind": "channel", "matrix": [[0.5, 0.4]]}',
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "r.json"
    file.write_text(text)
    with pytest.raises(ms.InputError, match="cannot use"):
        ms.load_randomizer(str(file))


def test_the_line_solver_gets_the_same_metric(finding: ms.SolvedMetric) -> None:
    known = algorithm_1n(LineTarget(0, 8, 0.1, 1.0), 100, 1e-6, 16)
    assert [one.diameter for one in finding.winner.found.solutions] == [
        one.diameter for one in known.solutions
    ]
