"""One collection of one's own, as far as its files tell: a task, the plan it comes from, and the release it led to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

from metricshuffle.errors import InputError
from metricshuffle.planning import Plan
from metricshuffle.planning.candidate import expected_error
from metricshuffle.planning.plan_text import expected_error_text
from metricshuffle.report.failure_scenarios import ProtocolReview
from metricshuffle.report.plan_view import PlanFacts, ReleaseFacts, TaskFacts, plan_facts, release_facts, task_facts
from metricshuffle.tasks.release import Release
from metricshuffle.tasks.task import Task


@dataclass(frozen=True)
class Collection:
    """What a report is about. A release holds its task, so that it is enough by itself."""

    task: Task
    plan: Plan | None = None
    release: Release | None = None

    @classmethod
    def of(cls, content: Plan | Task | Release, release: Release | None = None) -> Self:
        """A plan, a task or a release; a release beside them must belong to them."""
        if isinstance(content, Release):
            if release is not None:
                raise InputError("a report is about one release; give a plan or a task first, and then its release.")
            return cls(content.task, None, content)
        task = content.task if isinstance(content, Plan) else content
        task.verify_once()  # a page prints what it claims
        if release is not None and release.plan != task.digest:
            raise InputError(
                f"this release belongs to another plan: its task has the digest {release.plan[:16]}, that of this plan is "
                f"{task.digest[:16]}; give the plan it was made with, or the release alone."
            )
        return cls(task, content if isinstance(content, Plan) else None, release)

    @property
    def asked(self) -> Plan | Task:
        """What tells the target best: a plan keeps the delta that was asked for, a task only what is promised."""
        return self.task if self.plan is None else self.plan

    @cached_property
    def facts(self) -> TaskFacts:
        return self.plan_facts or task_facts(self.task)

    @cached_property
    def plan_facts(self) -> PlanFacts | None:
        return None if self.plan is None else plan_facts(self.plan)

    @cached_property
    def release_facts(self) -> ReleaseFacts | None:
        return None if self.release is None else release_facts(self.release)

    @cached_property
    def protocol_review(self) -> ProtocolReview:
        """What the task's protocol hides of other moves and among other people."""
        return ProtocolReview(self.asked, self.task.protocol, self.task.if_shuffler_colludes)

    @cached_property
    def expected_error(self) -> str:
        """With its unit: the plan's, the release's, or as a plan would work it out."""
        if self.plan is not None:
            expected = self.plan.choice.expected_error
        elif self.release is not None and self.release.expected_error is not None:
            expected = self.release.expected_error
        else:
            expected = expected_error(self.task.query, self.task.protocol, self.task.users)
        return expected_error_text(self.task.query, expected)
