"""Tasks with huge numbers: rejected or verified within seconds and a gigabyte."""

from __future__ import annotations

import copy
import json
import os
import resource
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from tests.catalogue.planned_tasks import KINDS, stored

from metricshuffle.errors import MetricShuffleError, NotCertified
from metricshuffle.tasks import Task

SECONDS = 10
MEMORY = 2**30
"""Generous limits; an idle machine needs a fraction, unbounded work minutes."""
FACTORS = (10.0, 100.0, 1e6, 1e12)
Path = tuple[Any, ...]


def numbers(part: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    inside = (
        part.items()
        if isinstance(part, dict)
        else enumerate(part)
        if isinstance(part, list)
        else ()
    )
    for key, value in inside:
        yield from numbers(value, (*path, key))
    if isinstance(part, int | float) and not isinstance(part, bool) and part != 0:
        yield path, part


def enlarged(content: Any, paths: list[Path], factor: float) -> Any:
    """Copy with these numbers multiplied, without its digest and sentences."""
    larger = copy.deepcopy(content)
    for *steps, last in paths:
        place = larger
        for step in steps:
            place = place[step]
        place[last] = type(place[last])(place[last] * factor)
    for guarantee in ("guarantee", "if_shuffler_colludes"):
        larger[guarantee].pop("sentence", None)
    larger.pop("digest")
    return larger


def ended(content: Any) -> tuple[str, float]:
    """Result of reading and verifying in a separate process, and its processor time.

    "verified", "refused" or the failure.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        pages = int(open("/proc/self/statm").read().split()[0])  # noqa: SIM115 - the process ends in a moment
        resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + MEMORY,) * 2)
        resource.setrlimit(
            resource.RLIMIT_CPU,
            (SECONDS + int(time.process_time()), SECONDS + int(time.process_time()) + 1),
        )
        try:
            Task.model_validate(content).verify()
            outcome = "verified"
        except (MetricShuffleError, ValueError):
            outcome = "refused"
        except BaseException as wrong:
            outcome = f"{type(wrong).__name__}: {wrong}"
        os.write(writing, outcome.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        outcome = told.read()
    _, status, used = os.wait4(child, 0)
    return outcome or f"died of signal {os.WTERMSIG(status)}", used.ru_utime + used.ru_stime


def mutations(kind: str, factors: tuple[float, ...]) -> Iterator[tuple[str, Any]]:
    """Each number alone, and all equal ones together, since sizes are repeated."""
    content = stored(kind)
    alike: dict[Any, list[Path]] = {}
    for path, value in numbers(content):
        alike.setdefault(value, []).append(path)
    groups = [[path] for path, _ in numbers(content)] + [
        paths for paths in alike.values() if len(paths) > 1
    ]
    for paths in groups:
        for factor in factors:
            yield (
                f"{kind}: {factor:g} times "
                f"{' and '.join('.'.join(map(str, path)) for path in paths)}",
                enlarged(content, paths, factor),
            )


def refused_or_verified(cases: Iterator[tuple[str, Any]], kind: str) -> None:
    Task.model_validate(
        enlarged(stored(kind), [], 1.0)
    ).verify()  # what is compiled or imported is not counted below
    ends = {name: ended(content) for name, content in cases}
    assert {name: end for name, end in ends.items() if end[0] not in ("verified", "refused")} == {}
    assert any(outcome == "refused" for outcome, _ in ends.values())


@pytest.mark.thorough
@pytest.mark.parametrize(("turn", "kind"), list(enumerate(KINDS)))
def test_some_numbers_that_are_far_too_large_are_refused_in_seconds(turn: int, kind: str) -> None:
    """Every ninth of them: numbers and factors take turns, and kinds begin at different ones."""
    refused_or_verified(islice(mutations(kind, FACTORS), turn % 9, None, 9), kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_that_are_far_too_large_are_refused_in_seconds(kind: str) -> None:
    refused_or_verified(mutations(kind, FACTORS), kind)


def test_a_witch_hat_of_a_hundred_times_the_epsilon() -> None:
    """Its weights are told in seconds not to fit (they took hours)."""
    assert (
        ended(enlarged(stored("witch hat"), [("protocol", "randomizer", "epsilon")], 100.0))[0]
        == "refused"
    )


def test_counts_of_very_many_bits_are_refused_by_their_size() -> None:
    content = stored("flipped bits")
    content["query"]["domain"]["high"] = content["protocol"]["randomizers"][0]["span"] = 10**9
    with pytest.raises(
        NotCertified, match="RR-Shuffle needs a count of ones that takes at most 1,000,000 values"
    ):
        Task.model_validate(enlarged(content, [], 1.0)).verify()


def test_long_lists_are_refused_in_seconds() -> None:
    content = json.loads(json.dumps(stored("labels")))
    content["query"]["domain"]["labels"] = [f"label {i}" for i in range(200_000)]
    content["protocol"]["randomizer"]["options"] = 200_000
    outcome, _ = ended(enlarged(content, [], 1.0))
    assert outcome in ("verified", "refused")
