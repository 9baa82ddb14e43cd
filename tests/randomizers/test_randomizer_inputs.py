"""Invalid parameters and values raise errors; large instances use closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from tests.tables import check_all

import metricshuffle.randomizers as shipped
from metricshuffle.errors import DomainError, InputError, NotCertified
from metricshuffle.randomizers import (
    BoundedGeometric,
    ClusteredResponse,
    Duchi,
    HadamardResponse,
    KaryRandomizedResponse,
    LocalHash,
    PaddedExponential,
    PckvGrr,
    PlanarGeometric,
    PrivKV,
    Randomizer,
    Rappor,
    SubsetExponential,
    SubsetSelection,
    WitchHat,
)
from metricshuffle.randomness import Randomness


@check_all(
    ("make", "told"),
    [
        (lambda: KaryRandomizedResponse(1, 1.0), "options must lie in 2"),
        (lambda: KaryRandomizedResponse(4, 0.0), "epsilon must be > 0"),
        (lambda: KaryRandomizedResponse(4, math.nan), "epsilon must be a finite number"),
        (lambda: KaryRandomizedResponse(4, 1e-30), "too small"),
        (lambda: KaryRandomizedResponse(4.5, 1.0), "options must be a whole number"),  # type: ignore[arg-type]
        (lambda: LocalHash(10, "one"), "epsilon must be a number"),  # type: ignore[arg-type]
        (lambda: HadamardResponse(10, -1.0), "epsilon must be > 0"),
        (lambda: SubsetSelection(10, None), "epsilon must be a number"),  # type: ignore[arg-type]
        (lambda: KaryRandomizedResponse(4, 701.0), "at most 700"),
        (lambda: LocalHash(10, 1.0, buckets=4), "must be a prime number .* the next one is 5"),
        (lambda: SubsetSelection(4, 1.0, size=4), "size \\+ held at most options"),
        (lambda: HadamardResponse(5, 1.0, blocks=4), "leave the last block empty"),
        (lambda: PaddedExponential([[0, 1, 9], [1, 0, 1], [9, 1, 0]], 1.0), "triangle inequality"),
        (
            lambda: PaddedExponential([[0, 1], [1, 0]], 1.0, kept=(0, 2)),
            "kept must be different points",
        ),
        (lambda: ClusteredResponse(2, 2, 1.0, 1.0), "inner must be below 1"),
        (lambda: BoundedGeometric(5, 1e-12), "rate must be a number between"),
        (lambda: PlanarGeometric(1, 5, 1.0), "a line is BoundedGeometric"),
        (lambda: WitchHat(1, 1.0, 1e-9), r"must be at most 2\^20 steps"),
        (lambda: Duchi(0, 1.0), "dimensions must lie in 1"),
        (lambda: PrivKV(3, 1.0, 1.0, held=4), "held <= keys"),
        (
            lambda: Randomizer.of_kind({"kind": "no-such"}),
            "unknown kind 'no-such'; known kinds are",
        ),
    ],
)
def test_bad_parameters(make: Callable[[], object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        make()


@check_all(
    ("randomizer", "values", "told"),
    [
        (KaryRandomizedResponse(4, 1.0), [0, -1], r"row 1 .* holds -1"),
        (SubsetExponential(6, 2, 1.0, 2), [[1, 1]], "2 different whole numbers from 0 to 5"),
        (SubsetSelection(6, 1.0, 2), [6], "different whole numbers from 0 to 5"),
        (Duchi(2, 1.0), [[0.5, 1.5]], "from -1 to 1"),
        (Duchi(2, 1.0), [[0.5, math.nan]], "from -1 to 1"),
        (PrivKV(2, 1.0, 1.0), [[math.nan, 2.0]], "NaN for a key that is not held"),
        (PckvGrr(3, 1, 1.0), [[0.5, 0.5, math.nan]], r"row 0 .* holds 2 keys"),
        (PlanarGeometric(3, 3, 1.0), [[0, 3]], "holds 3"),
    ],
)
def test_bad_values(randomizer: Randomizer, values: list[object], told: str) -> None:
    with pytest.raises(DomainError, match=told):
        randomizer.reports(np.array(values), Randomness.seeded(1))


def test_pairs_and_inputs_are_checked() -> None:
    response = KaryRandomizedResponse(4, 1.0)
    with pytest.raises(InputError, match="must differ, got 2 twice"):
        response.blanket(2, 2)
    with pytest.raises(InputError, match=r"coded 0\.\.3, got 4"):
        response.law(4)


def test_a_matrix_too_large_to_list_is_refused_but_the_closed_form_answers() -> None:
    for randomizer in (
        KaryRandomizedResponse(10_000, 1.0),
        LocalHash(5_000, 1.0),
        Rappor(300, 1.0),
        SubsetSelection(64, 1.0),
    ):
        with pytest.raises(NotCertified, match="use law, blanket"):
            randomizer.rows()
        law = randomizer.blanket(0, 1)
        assert law.pure <= 1.0 + 1e-12
        reports = randomizer.reports(np.zeros(200, dtype=np.int64), Randomness.seeded(1))
        assert randomizer.totals(reports).shape == (randomizer.inputs,)


@check_all("options", [3, 1000, 2**17, 2**24])
def test_k_ary_reports_at_every_size(options: int) -> None:
    """Keeps the value as often as the law says, and spreads the rest evenly.

    Many options read the spare words.
    """
    response = KaryRandomizedResponse(options, math.log(options))
    count = 300_000
    values = np.arange(count) % options
    reports = response.reports(values, Randomness.seeded(7)).astype(np.int64)
    keep = response.keep / 2**63
    assert abs(np.count_nonzero(reports == values) - count * keep) < 5 * math.sqrt(
        count * keep * (1 - keep)
    )
    moved = reports[reports != values] / (options - 1)
    assert 0.0 <= moved.min() <= moved.max() <= 1.0
    if options > 3:
        assert abs(moved.mean() - 0.5) < 5 * math.sqrt(1 / 12 / len(moved))


@check_all("options", [2, 3, 64, 5_000, 2**24])
@check_all("epsilon", [0.01, 1.0, 10.0, 22.0, 40.0])
def test_the_float_guess_of_k_ary_reports_is_exact(options: int, epsilon: float) -> None:
    """Half words at and next to the boundaries: decided ones do not depend on lower bits."""
    from metricshuffle.randomizers import _channel_kernels as kernels

    if options == 2**24 and epsilon == 0.01:
        epsilon = 0.1  # the least that 2^24 options can do
    response = KaryRandomizedResponse(options, epsilon)
    keep = response.keep
    other = response.other
    edges = [
        (keep + place * other) >> 31
        for place in np.linspace(0, options - 2, 40, dtype=np.int64).tolist()
    ]
    halves = np.array(
        [half for edge in edges for half in (edge - 1, edge, edge + 1) if 0 <= half < 2**32],
        dtype=np.uint32,
    )
    values = (np.arange(halves.size) % options).astype(np.int32)
    out = np.empty(halves.size, dtype=np.int32)
    spare = Randomness.seeded(3).words(halves.size)
    first = keep / 2**31
    inverse = 2**31 / other
    doubt = 2e-6 * inverse + 1e-15 * options
    undecided = kernels.draw_kary(halves, values, first, inverse, doubt, out)
    before = out.copy()
    kernels.finish_kary(halves, values, first, inverse, doubt, keep, other, spare, out)

    def report(number: int, value: int) -> int:
        option = (number - keep) // other
        return value if number < keep else option + (option >= value)

    used = 0
    for place, (half, value) in enumerate(zip(halves.tolist(), values.tolist(), strict=True)):
        ends = {report(half << 31, value), report((half << 31) + 2**31 - 1, value)}
        low = (half - first) * inverse - doubt
        if low + (inverse + 2 * doubt) >= math.floor(low) + 1:
            assert out[place] == report((half << 31) + (int(spare[used]) >> 33), value)
            used += 1
        else:
            assert ends == {before[place]} == {out[place]}
    assert used == undecided > 0


def test_every_name_is_exported() -> None:
    for name in shipped.__all__:
        assert getattr(shipped, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute"):
        _ = shipped.NoSuchRandomizer  # type: ignore[attr-defined]
