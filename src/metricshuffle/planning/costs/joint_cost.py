"""Joint privacy cost of several tasks for the same people, as numbers and as text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from metricshuffle.numerics.rounding import format_delta, format_distance, format_epsilon, round_up
from metricshuffle.planning.costs.task_cost import (
    FREE,
    UNBOUNDED,
    Price,
    TaskCost,
    composed_epsilon,
)
from metricshuffle.privacy.guarantee import Guarantee


@dataclass(frozen=True)
class JointCost:
    """Released rounds of every task and their joint cost; `planned` counts all planned rounds.

    `spent` and `planned` hold for one person who moves, in each task, by up to the distance of that
    task (and for several people whose moves add up, if every task protects them). `colluding` is
    the cost if the trusted parties are not honest. `common` is the cost when one value moves in all
    tasks of a unit at once, by the smallest of their distances; None if these distances are equal.
    """

    tasks: tuple[TaskCost, ...]
    spent: Price
    planned: Price
    colluding: Price
    common: CommonDistanceCost | None

    @property
    def people_together(self) -> bool:
        """Whether every task protects any number of people whose moves add up."""
        return all(part.task.guarantee.protects == "people together" for part in self.tasks)

    def document(self) -> dict[str, Any]:
        """Return the cost as JSON data; an unbounded epsilon is null."""
        common = (
            None
            if self.common is None
            else {"distances": self.common.document(), "spent": _numbers(self.common.spent)}
        )
        return {
            "tasks": [_row(part) for part in self.tasks],
            "together": {
                "spent": _numbers(self.spent),
                "planned": _numbers(self.planned),
                "if_shuffler_colludes": _numbers(self.colluding),
                "protects": "people together" if self.people_together else "one person",
                "smaller_distance": common,
            },
        }

    def lines(self) -> list[str]:
        """Return one paragraph per task and one for the joint cost."""
        if not self.tasks:
            return ["Nothing was released."]
        texts = [
            line for number, part in enumerate(self.tasks, 1) for line in _task_text(number, part)
        ]
        return texts if len(self.tasks) == 1 else [*texts, *self._total_text()]

    def _total_text(self) -> list[str]:
        who, total = (
            ("any number of people who move", " in total")
            if self.people_together
            else ("one person who moves", "")
        )
        moves = _and(
            [
                f"by up to {distance_text(part.task.guarantee)}{total} in ({number})"
                for number, part in enumerate(self.tasks, 1)
            ]
        )
        relied = any(part.task.protocol.trusted != "nobody" for part in self.tasks)
        as_long = (
            ", as long as whoever a task trusts is honest, and as many honest people "
            "report as it counts on"
            if relied
            else ""
        )
        lines = [
            f"Together: {_price(self.spent)} so far, and {_price(self.planned)} when all "
            f"planned rounds are released, for {who} "
            f"{moves}{as_long}. Smaller moves cost no more; for a larger one in any of "
            "them nothing is promised.",
            f"If those who are trusted are not honest: {_price(self.colluding)} so far, "
            "for one person.",
        ]
        if self.common is not None:
            moved = (
                f"If it is the same value that moves, by up to {self.common.words()} in all "
                "tasks of this unit"
            )
            moved += " (and as above in the others)" if self.common.others else ""
            lines.append(f"{moved}: {_price(self.common.spent)} so far.")
        return [
            *lines,
            "This assumes that the tasks and the numbers of rounds were not chosen by looking "
            "at earlier answers.",
        ]


@dataclass(frozen=True)
class CommonDistanceCost:
    """Cost with tasks of the same unit at their smallest distance and all others at their own."""

    distances: tuple[float, ...]
    spent: Price
    smallest: tuple[tuple[float, str], ...]
    """Smallest distance and unit, for every unit that several tasks share."""
    others: bool
    """Whether there are also tasks of other units."""

    def words(self) -> str:
        return _and([f"{format_distance(distance)} {unit}" for distance, unit in self.smallest])

    def document(self) -> list[float]:
        return list(self.distances)


def joint_cost(tasks: Sequence[TaskCost]) -> JointCost:
    """Compute the joint cost; verifies every task first, so that its stated guarantee is true."""
    for part in tasks:
        part.task.verify()
    released = tuple(part for part in tasks if part.rounds)
    everything = tuple(part.of(max(part.rounds, part.task.rounds)) for part in tasks)
    own = [part.task.guarantee.distance for part in tasks]
    return JointCost(
        tuple(tasks),
        _compose_parts(released, [part.task.guarantee.distance for part in released]),
        _compose_parts(everything, own),
        _add_prices([part.alone for part in released]),
        _near(released),
    )


def _compose_parts(parts: Sequence[TaskCost], distances: Sequence[float]) -> Price:
    """Compose the parts at the sum of their deltas."""
    if not parts:
        return FREE
    if len(parts) == 1:
        return parts[0].at(distances[0])
    delta = _add_prices(
        [part.at(distance) for part, distance in zip(parts, distances, strict=True)]
    ).delta
    return Price(composed_epsilon(parts, distances, delta), delta)


def _add_prices(prices: Sequence[Price]) -> Price:
    """Basic composition: epsilons and deltas add up."""
    if len(prices) < 2:
        return prices[0] if prices else FREE
    epsilon, delta = (
        math.fsum(number)
        for number in zip(*((price.epsilon, price.delta) for price in prices), strict=True)
    )
    return (
        UNBOUNDED
        if math.isinf(epsilon)
        else Price(round_up(epsilon, 2), min(1.0, round_up(delta, 2)))
    )


def _near(parts: Sequence[TaskCost]) -> CommonDistanceCost | None:
    """Cost at the smallest distance of tasks of the same measure; None if these are all equal."""
    min_distances: dict[tuple[str, str, bool], float] = {}
    for part in parts:
        claimed = part.task.guarantee
        min_distances[_measure(claimed)] = min(
            claimed.distance, min_distances.get(_measure(claimed), math.inf)
        )
    distances = [
        min_distances[_measure(part.task.guarantee)]
        if part.task.guarantee.unit
        else part.task.guarantee.distance
        for part in parts
    ]
    nearer = [
        part.task.guarantee
        for part, distance in zip(parts, distances, strict=True)
        if distance < part.task.guarantee.distance
    ]
    if not nearer:
        return None
    smallest = sorted({(min_distances[_measure(claimed)], claimed.unit) for claimed in nearer})
    shared = {_measure(claimed) for claimed in nearer}
    others = any(_measure(part.task.guarantee) not in shared for part in parts)
    return CommonDistanceCost(
        tuple(distances), _compose_parts(parts, distances), tuple(smallest), others
    )


def _measure(claimed: Guarantee) -> tuple[str, str, bool]:
    return claimed.unit, claimed.between, claimed.protects == "one user's items"


def distance_text(claimed: Guarantee) -> str:
    """Format a distance with its unit, and what it is measured between where that is not clear."""
    unit = f" {claimed.unit}" if claimed.unit else ""
    items = " of earth mover's distance" if claimed.protects == "one user's items" else ""
    between = "" if claimed.between == "values" else f" (between {claimed.between})"
    return f"{format_distance(claimed.distance)}{unit}{items}{between}"


def _task_text(number: int, part: TaskCost) -> list[str]:
    task = part.task
    claimed = part.task.guarantee
    rounds = (
        f"{part.rounds:,} of {task.rounds:,} round{'s' * (task.rounds != 1)} released, "
        f"{part.left:,} left"
    )
    over = f"; {part.rounds - task.rounds:,} MORE THAN PLANNED" if part.rounds > task.rounds else ""
    shape = ", and proportionally less for a smaller move" if claimed.shape == "linear" else ""
    whole = {
        "one person": "one person's move",
        "people together": "moves in total",
        "one user's items": "one user's items moving",
    }
    lines = [
        f"({number}) {task.query}: {task.protocol.name}, task {task.digest[:12]}. {rounds}{over}.",
        f"    Spent: epsilon {format_epsilon(part.price.epsilon)} of "
        f"{format_epsilon(claimed.epsilon)} ({_delta(part.price.delta)}) for "
        f"{whole[claimed.protects]} by up to {distance_text(claimed)}{shape}.",
    ]
    if part.seeded:
        lines.append(
            f"    UNSAFE: seeded randomness was used in {part.seeded:,} of them; those are "
            "simulations, for which this does not hold."
        )
    if task.protocol.trusted != "nobody":
        planned = task.if_shuffler_colludes.epsilon
        left = (
            f"epsilon {format_epsilon(part.alone.epsilon)} of {format_epsilon(planned)} "
            f"({_delta(part.alone.delta)}), for one person"
        )
        lines.append(
            f"    If the {task.protocol.trusted} is not honest: "
            f"{left if math.isfinite(part.alone.epsilon) else 'no promise'}."
        )
    return lines


def _row(part: TaskCost) -> dict[str, Any]:
    task = part.task
    claimed = part.task.guarantee
    return {
        "task": task.digest,
        "query": task.query.model_dump(mode="json"),
        "protocol": task.protocol.name,
        "rounds": task.rounds,
        "released": part.rounds,
        "left": part.left,
        "unsafe_seeded": part.seeded,
        "distance": claimed.distance,
        "unit": claimed.unit,
        "shape": claimed.shape,
        "protects": claimed.protects,
        "spent": _numbers(part.price),
        "planned": _numbers(Price(claimed.epsilon, claimed.delta)),
        "if_shuffler_colludes": {
            "spent": _numbers(part.alone),
            "planned": _numbers(
                Price(task.if_shuffler_colludes.epsilon, task.if_shuffler_colludes.delta)
            ),
        },
    }


def _numbers(price: Price) -> dict[str, float | None]:
    return {
        "epsilon": price.epsilon if math.isfinite(price.epsilon) else None,
        "delta": price.delta,
    }


def _price(price: Price) -> str:
    return (
        f"epsilon {format_epsilon(price.epsilon)} ({_delta(price.delta)})"
        if math.isfinite(price.epsilon)
        else "no promise"
    )


def _delta(delta: float) -> str:
    return "with certainty" if delta == 0.0 else f"delta {format_delta(delta)}"


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
