"""Flows: the number of trips from zone to zone, one trip per person."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from metricshuffle.errors import InputError, argument
from metricshuffle.queries.histogram import Histogram, within_zones
from metricshuffle.queries.query import Estimate
from metricshuffle.queries.result_table import Table
from metricshuffle.spaces import Domain, ZonePairs, Zones


class Flows(Histogram):
    """Number of people who go from each zone to each zone; everyone reports one trip.

    The distance of two trips is that of their starts plus that of their ends. Trips within one zone
    are counted like all others. If zones have blocks, the flows between blocks have intervals.
    """

    domains: ClassVar[tuple[type[Domain], ...]] = (ZonePairs,)
    domain_words: ClassVar[str] = "Zones"
    noun: ClassVar[str] = "flows"
    kind: Literal["flows"] = "flows"  # type: ignore[assignment]

    def __init__(
        self, domain: Zones | ZonePairs, step: float | None = None, **fields: object
    ) -> None:
        pairs = ZonePairs(domain) if isinstance(domain, Zones) else domain
        super().__init__(pairs, step, **fields)

    @property
    def pairs(self) -> ZonePairs:
        """The pairs of zones that are counted."""
        assert isinstance(self.domain, ZonePairs)  # noqa: S101 - for the type checker
        return self.domain

    @property
    def by_blocks(self) -> bool:
        """Whether flows between blocks of zones are asked for, with intervals."""
        return self.pairs.zones.blocks is not None

    @property
    def title(self) -> str:
        return self.kind

    @property
    def measure(self) -> str:
        of = "a flow between blocks" if self.by_blocks else "a flow"
        return f"expected error of the share of {of}"

    def block_flows(
        self, estimate: Estimate, level: float = 0.95, *, simultaneous: bool = False
    ) -> Table:
        """Flows between blocks, each with its interval at a level, or jointly if `simultaneous`."""
        if not self.by_blocks:
            raise InputError(
                "the zones of these flows have no blocks",
                field="blocks",
                remedy=f"plan with zones that name theirs ({argument('blocks')}).",
            )
        if estimate.nearby is None:
            raise InputError(
                "flows between blocks were not measured",
                field="randomizer",
                remedy="plan without a randomizer of your own.",
            )
        zones = self.pairs.zones
        names = sorted(set(zones.blocks or ()))
        # Each block is represented by its first zone.
        first = np.unique(zones.block_codes, return_index=True)[1]
        rows = np.add.outer(first * len(zones.ids), first).ravel()
        low, high = (end[rows] for end in estimate.nearby.ends(level, simultaneous))
        unbiased = np.asarray(estimate.nearby.shares)[rows]
        shares = np.clip(unbiased, 0.0, 1.0)
        return Table(
            {
                "from": [start for start in names for _ in names],
                "to": [end for _ in names for end in names],
                "share": shares,
                "count": shares * estimate.people,
                f"interval_{100.0 * level:g}": list(zip(low.tolist(), high.tolist(), strict=True)),
                "unbiased": unbiased,
            }
        )

    @property
    def farthest_move(self) -> str:
        return "both ends of a trip from one side of the map to the other"

    def remarks(self) -> list[str]:
        """Say what it costs to move one end, both ends, or an end within its zone."""
        return [
            "The distance of two trips is that of their starts plus that of their ends: moving one "
            "end by d costs as much as d, and moving both ends by d as much as 2 d.",
            *within_zones(self.pairs.zones, "a trip's ends"),
        ]

    def __str__(self) -> str:
        return f"flows between {self.pairs.zones}"
