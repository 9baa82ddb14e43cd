"""Flow of concave lines: closed form, certified supremum, all distances from interval ends."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from tests.tables import check_all

from metricshuffle.accounting.user_items.move_composition import (
    DistanceWeight,
    LineFlow,
    certificate,
)
from metricshuffle.errors import InputError
from metricshuffle.numerics.types import Floats

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "golden" / "user_level_flow.json").read_text(encoding="utf-8")
)


def speed(intercepts: Floats, slopes: Floats, a: Floats) -> Floats:
    return np.asarray((intercepts[:, None] + slopes[:, None] * a).min(axis=0))


def stepped(
    intercepts: Floats, slopes: Floats, a: Floats, time: float, steps: int = 2000
) -> Floats:
    """The flow by Runge and Kutta: no closed form, no breaks."""
    h = time / steps
    for _ in range(steps):
        one = speed(intercepts, slopes, a)
        two = speed(intercepts, slopes, a + 0.5 * h * one)
        three = speed(intercepts, slopes, a + 0.5 * h * two)
        four = speed(intercepts, slopes, a + h * three)
        a = a + h / 6.0 * (one + 2.0 * two + 2.0 * three + four)
    return a


def random_lines(rng: np.random.Generator, count: int = 12) -> tuple[Floats, Floats]:
    slopes = np.concatenate([[0.0], np.sort(rng.uniform(0.01, 3.0, count - 1))])
    return np.exp(-rng.uniform(2.0, 6.0) * slopes - rng.uniform(0.0, 1.0, count)), slopes


def test_golden_flow() -> None:
    given = GOLDEN["flow"]
    flow = LineFlow.of(given["intercepts"], given["slopes"])
    for row in given["reached"]:
        assert flow.reached(given["start"], row["time"]) == pytest.approx(row["value"], rel=1e-11)


@pytest.mark.parametrize("seed", range(4))
def test_flow_agrees_with_small_steps(seed: int) -> None:
    rng = np.random.default_rng(seed)
    intercepts, slopes = random_lines(rng)
    flow = LineFlow.of(intercepts, slopes)
    time = float(rng.uniform(0.2, 4.0))
    starts = np.array([0.0, 1e-9, 1e-4, 0.02, 0.7])
    wanted = stepped(intercepts, slopes, starts, time)
    assert [flow.reached(float(a), time) for a in starts] == pytest.approx(wanted, rel=1e-6)


def test_flows_add_up_and_are_concave() -> None:
    flow = LineFlow.of(*random_lines(np.random.default_rng(5)))
    for a in (0.0, 1e-6, 0.1):
        assert flow.reached(flow.reached(a, 0.7), 1.1) == pytest.approx(
            flow.reached(a, 1.8), rel=1e-12
        )
    gains = np.diff([flow.reached(x, 2.0) for x in np.linspace(0.0, 0.5, 200).tolist()])
    assert np.all(np.diff(gains) <= 1e-12)


def test_only_the_lowest_lines_are_kept_and_their_order_does_not_matter() -> None:
    intercepts, slopes = random_lines(np.random.default_rng(8), 40)
    flow = LineFlow.of(intercepts, slopes)
    mixed = np.random.default_rng(9).permutation(40)
    other = LineFlow.of(intercepts[mixed], slopes[mixed])
    assert np.array_equal(flow.slopes, other.slopes)
    assert len(flow.slopes) < 40
    a = np.geomspace(1e-9, 10.0, 300)
    assert speed(flow.intercepts, flow.slopes, a) == pytest.approx(
        speed(intercepts, slopes, a), rel=1e-14
    )
    assert np.all(np.diff(flow.breaks[:-1]) > 0.0)


@check_all("seed", range(5))
@check_all("epsilon", [0.0, 0.3, 2.0, 6.0])
def test_delta_is_the_supremum_and_not_less(seed: int, epsilon: float) -> None:
    rng = np.random.default_rng(seed)
    flow = LineFlow.of(*random_lines(rng, 30))
    time = float(rng.uniform(0.2, 5.0))
    found = flow.delta(time, epsilon)
    a = np.concatenate([[0.0], np.geomspace(1e-9, 20.0, 3000)])
    values = np.array([flow.reached(float(x), time) for x in a]) - math.exp(epsilon) * a
    assert found.delta >= values.max() * (1.0 - 1e-12)
    assert found.delta <= values.max() * (1.0 + 1e-4)


def exactly(lines: list[tuple[Any, Any]], a: Any, time: Any) -> Any:
    """The flow with 50 digits, always on the flattest of the lowest lines."""
    while True:
        lowest = min(c + k * a for c, k in lines)
        k, c = min((k, c) for c, k in lines if c + k * a <= lowest * (1 + mpmath.mpf(10) ** -40))
        ahead = [(other - c) / (k - flat) for other, flat in lines if flat < k]
        until = min([b for b in ahead if b > a * (1 + mpmath.mpf(10) ** -35)], default=mpmath.inf)
        if lowest == 0:
            return a
        if k == 0:
            return a + c * time
        needed = mpmath.log((c + k * until) / lowest) / k
        if needed >= time:
            return (lowest * mpmath.exp(k * time) - c) / k
        time = time - needed
        a = until


@check_all(("seed", "epsilon"), [(0, 0.1), (1, 2.0), (2, 20.0), (3, 100.0), (4, 400.0)])
def test_delta_with_fifty_digits(seed: int, epsilon: float) -> None:
    rng = np.random.default_rng(seed)
    slopes = np.concatenate([[0.0], np.sort(np.exp(rng.uniform(-3.0, 3.5, 9)))])
    intercepts = np.exp(-np.cumsum(np.concatenate([[0.0], rng.exponential(6.0, 9)])))
    time = float(rng.uniform(0.5, 12.0))
    found = LineFlow.of(intercepts, slopes).delta(time, epsilon)
    with mpmath.workdps(50):
        lines = [
            (mpmath.mpf(c), mpmath.mpf(k))
            for c, k in zip(intercepts.tolist(), slopes.tolist(), strict=True)
        ]
        growth = mpmath.exp(mpmath.mpf(epsilon))
        near = [found.start * math.exp(x) for x in (-1e-3, -1e-5, 0.0, 1e-5, 1e-3)]
        best = max(
            exactly(lines, mpmath.mpf(a), mpmath.mpf(time)) - growth * a
            for a in (0.0, 1e-90, 1e-30, 1e-9, 1e-3, *near)
        )
        assert best <= found.delta <= best * (1 + mpmath.mpf(1e-8))


def test_delta_of_a_pure_line_vanishes_where_it_should() -> None:
    flow = LineFlow.of([1.0, 0.0], [0.0, 0.5])
    assert flow.delta(4.0, 2.0 + 1e-9).delta == 0.0
    assert flow.delta(4.0, 1.999).delta > 1e-4
    assert flow.delta(4.0, 2.0).delta <= 1e-9


def test_delta_is_right_far_below_any_fixed_floor() -> None:
    """Lines c e^(-40 k), as of a normal law: at epsilon = 300 the optimum lies near e^-380."""
    slopes = np.concatenate([[0.0], np.geomspace(1e-2, 60.0, 2000)])
    flow = LineFlow.of(np.exp(-0.5 * slopes**2) * (1.0 + slopes) ** -2.0, slopes)
    found = flow.delta(20.0, 300.0)
    assert 0.0 < found.start < 1e-100
    assert found.delta > 0.9 * (found.end - math.exp(300.0) * found.start) > 0.0
    assert (
        flow.delta(20.0, 5000.0).delta == flow.delta(20.0, 500.0).delta
    )  # never optimistic beyond what is evaluated


@check_all(
    ("intercepts", "slopes", "time"),
    [
        ([1e-150, 1.0], [1e-200, 0.0], 3.0),
        ([1e-100, 2e-100], [1e-230, 0.0], 1e-10),
        ([1e-299, 4e-89, 4e-12], [1.4e-8, 2e-9, 0.0], 4e-9),
    ],
)
def test_the_flow_does_not_stand_still_by_underflow(
    intercepts: list[float], slopes: list[float], time: float
) -> None:
    flow = LineFlow.of(intercepts, slopes)
    with mpmath.workdps(400):
        lines = [(mpmath.mpf(c), mpmath.mpf(k)) for c, k in zip(intercepts, slopes, strict=True)]
        for start in (0.0, 1e-310, 1e-200):
            assert flow.reached(start, time) >= exactly(lines, mpmath.mpf(start), mpmath.mpf(time))


def test_one_line_and_no_time() -> None:
    flow = LineFlow.of([0.01], [0.0])
    assert flow.delta(3.0, 1.0).delta == pytest.approx(0.03, rel=1e-12)
    assert flow.delta(3.0, 0.0).delta == pytest.approx(0.03, rel=1e-12)
    assert flow.delta(0.0, 1.0).delta == 0.0


@check_all("seed", range(5))
def test_a_linear_clock_is_worst_at_its_end(seed: int) -> None:
    rng = np.random.default_rng(seed)
    flow = LineFlow.of(*random_lines(rng, 30))
    rate = float(rng.uniform(0.5, 6.0))
    deltas = [flow.delta(3.0 * w, rate * w).delta for w in np.linspace(0.01, 1.0, 60)]
    assert np.all(np.diff(deltas) >= -1e-9 * np.array(deltas[1:]))


@check_all("seed", range(10))
def test_between_two_distances_no_delta_exceeds_those_at_the_ends(seed: int) -> None:
    rng = np.random.default_rng(seed)
    flow = LineFlow.of(*random_lines(rng, 30))
    rate = float(rng.uniform(0.5, 12.0))
    u, v = np.sort(rng.uniform(0.0, 1.0, 2))
    base = float(rng.uniform(0.0, 3.0))
    grows = float(rng.uniform(0.0, 6.0))
    ends = max(flow.delta(base + grows * (w - u), rate * w).delta for w in (u, v))
    inside = [flow.delta(base + grows * (w - u), rate * w).delta for w in np.linspace(u, v, 40)]
    assert max(inside) <= ends * (1.0 + 1e-9)


@check_all("rate", [3.0, 6.0, 9.0])
def test_certificate_is_what_a_fine_grid_says(rate: float) -> None:
    flow = LineFlow.of(*random_lines(np.random.default_rng(3), 40))
    clock = DistanceWeight(3, rate=4.0)
    grid = max(flow.delta(clock.time(w), rate * w).delta for w in np.linspace(1e-3, 1.0, 500))

    def delta_at(time: float, epsilon: float) -> float:
        return flow.delta(time, epsilon).delta

    good = certificate(delta_at, clock, rate, 1.001 * grid)
    assert good.kept
    assert good.worst[0] <= 1.001 * grid
    assert good.intervals[0][0] == 0.0
    assert good.intervals[-1][1] == 1.0
    bad = certificate(delta_at, clock, rate, 0.999 * grid)
    assert not bad.kept
    assert bad.intervals == ()


def test_clock_with_knots_is_checked_at_them() -> None:
    flow = LineFlow.of(*random_lines(np.random.default_rng(3), 40))
    clock = DistanceWeight(2, knots=((0.1, 0.5), (1.0, 1.0)))
    found = certificate(lambda time, epsilon: flow.delta(time, epsilon).delta, clock, 6.0, 1.0)
    assert [at for at, *_ in found.ends] == [0.1, 1.0]
    assert found.ends[0][1] == pytest.approx(1.0)
    assert found.ends[1][1] == pytest.approx(2.0)
    grid = max(flow.delta(clock.time(w), 6.0 * w).delta for w in np.linspace(1e-3, 1.0, 300))
    assert found.worst[0] >= grid * (1.0 - 1e-9)


@check_all(
    ("intercepts", "slopes"),
    [
        ([1.0], [1.0]),
        ([math.nan], [0.0]),
        ([-1.0], [0.0]),
        ([1.0, 1.0], [0.0]),
        ([], []),
        ([1.0, 2.0], [0.0, math.inf]),
    ],
)
def test_lines_that_are_none_are_refused(intercepts: list[float], slopes: list[float]) -> None:
    with pytest.raises(InputError):
        LineFlow.of(intercepts, slopes)


def test_wrong_numbers_are_refused() -> None:
    flow = LineFlow.of([0.01], [0.0])
    for wrong in (math.nan, -1.0, math.inf):
        with pytest.raises(InputError):
            flow.delta(wrong, 1.0)
        with pytest.raises(InputError):
            flow.reached(0.1, wrong)
    for wrong in (math.nan, -1.0):
        with pytest.raises(InputError):
            flow.delta(1.0, wrong)
    with pytest.raises(InputError, match="concave"):
        DistanceWeight(1, knots=((0.5, 0.1), (1.0, 1.0)))
    with pytest.raises(InputError):
        DistanceWeight(1)
