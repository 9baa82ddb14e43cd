"""Subject of a report: a task, and if given the plan it comes from and its release."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from metricshuffle.errors import InputError
from metricshuffle.planning import Plan
from metricshuffle.planning.candidate import expected_error
from metricshuffle.planning.plan_text import expected_error_text
from metricshuffle.report.failure_scenarios import ProtocolReview
from metricshuffle.report.plan_view import (
    PlanFacts,
    ReleaseFacts,
    TaskFacts,
    plan_facts,
    release_facts,
    task_facts,
)
from metricshuffle.tasks.release import Release
from metricshuffle.tasks.task import Task


@dataclass(frozen=True)
class ReportSubject:
    """What a report is about. A release contains its task, so it is enough by itself."""

    task: Task
    plan: Plan | None = None
    release: Release | None = None

    @classmethod
    def of(cls, content: Plan | Task | Release, release: Release | None = None) -> Self:
        """Build the subject of a plan, task or release; a second `release` must belong to it."""
        if isinstance(content, Release):
            if release is not None:
                raise InputError(
                    "a report is about one release; give a plan or a task first, and then "
                    "its release."
                )
            return cls(content.task, None, content)
        task = content.task if isinstance(content, Plan) else content
        task.verify_once()  # The page prints its guarantee.
        if release is not None and release.plan != task.digest:
            raise InputError(
                "this release belongs to another plan: its task has the digest "
                f"{release.plan[:16]}, that of this plan is "
                f"{task.digest[:16]}; give the plan it was made with, or the release alone."
            )
        return cls(task, content if isinstance(content, Plan) else None, release)

    @property
    def asked(self) -> Plan | Task:
        """The plan, which has the requested delta, or else the task."""
        return self.task if self.plan is None else self.plan

    @cached_property
    def facts(self) -> TaskFacts:
        facts = self.plan_facts or task_facts(self.task)
        if self.release is None:
            return facts
        return replace(facts, warning=self.release.caveat)

    @cached_property
    def plan_facts(self) -> PlanFacts | None:
        return None if self.plan is None else plan_facts(self.plan)

    @cached_property
    def release_facts(self) -> ReleaseFacts | None:
        return None if self.release is None else release_facts(self.release)

    @cached_property
    def protocol_review(self) -> ProtocolReview:
        """The task's protocol, for other distances and numbers of people."""
        return ProtocolReview(self.asked, self.task.protocol, self.task.if_shuffler_colludes)

    @cached_property
    def expected_error(self) -> str:
        """Expected error with its unit: of the plan, of the release, or computed like a plan's."""
        if self.plan is not None:
            expected = self.plan.choice.expected_error
        elif self.release is not None and self.release.expected_error is not None:
            expected = self.release.expected_error
        else:
            expected = expected_error(self.task.query, self.task.protocol, self.task.users)
        return expected_error_text(self.task.query, expected)
