"""How raw values were read before anything was added up, as a release tells it: what was asked for, and never how many values it met."""

from __future__ import annotations

from typing import Literal

from metricshuffle.models import FrozenModel
from metricshuffle.queries.query import Query


class Reading(FrozenModel):
    """What was done about values outside the domain, missing values, and several rows of one person.

    It is the same whatever the values are, so that it can be published. How many values were moved or left out is an exact number about
    people, which no noise hides: whoever holds the values is told, and no file.
    """

    clamp: bool = False
    drop_outside: bool = False
    drop_missing: bool = False
    per_user: Literal["mean", "sum", "first", "sample"] | None = None

    def warning(self, query: Query) -> str:
        """That the answer is about other values than people gave, or nothing."""
        if not self.clamp:
            return ""
        moved = f"The {self.per_user} of somebody's rows" if self.per_user in ("mean", "sum") else "A value"
        return (
            f"{moved} outside {query.values_in} was moved to the nearest end, wherever there was one: the answer is about the moved "
            "values. How many were moved is not told here, because that number is not private."
        )

    def remarks(self, query: Query) -> list[str]:
        """What else a reader of the answer should know, in sentences."""
        remarks = []
        if self.per_user == "mean" and not self.drop_outside:
            remarks.append(f"Everybody's value is the mean of their rows, of any outside {query.values_in} too.")
        elif self.per_user in ("mean", "sum"):
            remarks.append(f"Everybody's value is the {self.per_user} of their rows.")
        elif self.per_user is not None:
            chosen = "the first of their rows" if self.per_user == "first" else "one of their rows, drawn at random"
            remarks.append(f"Everybody's value is {chosen}.")
        if self.drop_outside:
            remarks.append(f"Rows outside {query.values_in} were left out, wherever there were any.")
        if self.drop_missing:
            remarks.append("Rows without a value were left out, wherever there were any.")
        return remarks
