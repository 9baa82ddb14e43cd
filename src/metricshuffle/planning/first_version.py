"""Plan files of version 1 (sums, means and centroids only), read as plans of today."""

from __future__ import annotations

import math
from typing import Any

from metricshuffle.declared import content_digest
from metricshuffle.errors import InputError, PlanError
from metricshuffle.planning.candidate import Candidate
from metricshuffle.privacy.target import Target
from metricshuffle.protocols.sums import Sums
from metricshuffle.queries.base import Query
from metricshuffle.queries.sums import SummedQuery
from metricshuffle.wire.task import Task

TRUSTED = {"analyst": "nobody", "shuffler": "shuffler", "aggregator": "aggregator", "curator": "curator"}
"""Whom a transport of version 1 trusts."""


def first_version(data: dict[str, Any]) -> dict[str, Any]:
    """The fields of a plan from those of version 1; the digest of the file is checked first."""
    content = {name: value for name, value in data.items() if name != "digest"}
    if data.get("digest") != content_digest({**content, "candidates": _with_infinities(data.get("candidates"))}):
        raise PlanError("its digest does not match its content: the file was edited or damaged; make the plan again.")
    try:
        query = Query.of_kind(data["query"])
        if not isinstance(query, SummedQuery):
            raise PlanError(f"version 1 of a plan is about sums, and this one is a {getattr(query, 'kind', None)!r}; plan again.")
        step = query.step(data["granularity"])
        candidates = tuple(_candidate(row, step, query.between(step)) for row in data["candidates"])
        choice = candidates[data["chosen"]]
        task = Task(
            query=query, protocol=choice.mechanism, users=data["users"], honest=data["honest"], rounds=data["rounds"],
            guarantee=choice.guarantee, if_shuffler_colludes=choice.fallback,
        )  # fmt: skip
        return {
            "target": Target(**data["target"]), "granularity": data["granularity"], "trusted": data["trusted"], "chosen": data["chosen"],
            "candidates": candidates, "not_offered": data["not_offered"], "task": task,
        }  # fmt: skip
    except (KeyError, TypeError, IndexError, InputError) as wrong:
        raise PlanError(f"this plan of version 1 cannot be read ({wrong}); plan again.") from None


def _with_infinities(candidates: Any) -> Any:
    """Candidates as their digest was taken: what has no bound was an infinity there, and is null in the file."""
    if not isinstance(candidates, list) or not all(isinstance(row, dict) for row in candidates):
        return candidates
    boundless = ("local_epsilon", "local_epsilon_per_unit", "expected_error")
    return [{**row, **{name: math.inf for name in boundless if row.get(name, 0.0) is None}} for row in candidates]


def _candidate(row: dict[str, Any], step: float, between: str) -> Candidate:
    """A candidate of today; how its distances are measured is told in today's words."""
    old = row["mechanism"]
    protocol = Sums(
        name=old["name"], trusted=TRUSTED[old["transport"]], step=step, randomizers=old["randomizers"], modulus=old["modulus"],
        shares=old["messages"],
    )  # fmt: skip
    promises = {name: {**row[name], "between": between} for name in ("guarantee", "fallback")}
    return Candidate(**{**row, **promises, "mechanism": protocol})
