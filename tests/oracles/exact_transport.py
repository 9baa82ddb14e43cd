"""Earth mover's distance in fractions, by successive cheapest paths, for a few points."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

Table = Sequence[Sequence[Fraction]]


def exact_earth_mover(costs: Table, a: Sequence[float], b: Sequence[float]) -> Fraction:
    """Least cost of turning a into b, each divided by its total, with doubles taken exactly."""
    points = range(len(costs))
    given, wanted = (
        [Fraction(weight) / sum(map(Fraction, weights)) for weight in weights] for weights in (a, b)
    )
    flow: dict[tuple[int, int], Fraction] = {}
    while any(given):
        way, before = _cheapest(costs, given, flow)
        end = min((j for j in points if wanted[j] > 0), key=lambda j: way[len(costs) + j])
        path = [len(costs) + end]
        while path[-1] in before:
            path.append(before[path[-1]])
        steps = [(after, node) for node, after in zip(path[1:], path, strict=False)]
        back = [flow[after, node - len(costs)] for after, node in steps if node >= len(costs)]
        amount = min(given[path[-1]], wanted[end], *back)
        for after, node in steps:
            forward = node < len(costs)
            link = (node, after - len(costs)) if forward else (after, node - len(costs))
            flow[link] = flow.get(link, Fraction(0)) + (amount if forward else -amount)
        given[path[-1]] -= amount
        wanted[end] -= amount
    return sum((amount * costs[i][j] for (i, j), amount in flow.items()), Fraction(0))


def _cheapest(
    costs: Table, given: list[Fraction], flow: dict[tuple[int, int], Fraction]
) -> tuple[dict[int, Fraction], dict[int, int]]:
    """Bellman-Ford from every point with mass left: sources are 0.., targets follow them."""
    size = len(costs)
    way = {i: Fraction(0) for i in range(size) if given[i] > 0}
    before: dict[int, int] = {}
    links = [(i, size + j, costs[i][j]) for i in range(size) for j in range(size)]
    links += [(size + j, i, -costs[i][j]) for (i, j), amount in flow.items() if amount > 0]
    changed = True
    while changed:
        changed = False
        for node, after, cost in links:
            if node in way and (after not in way or way[node] + cost < way[after]):
                way[after], before[after], changed = way[node] + cost, node, True
    return way, before
