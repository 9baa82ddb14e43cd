"""What every plan file has in common: a format, a digest of its content, and reading it back in words."""

from __future__ import annotations

import hashlib
import json
from typing import Any, ClassVar, Generic, Self, TypeVar

from pydantic import model_validator

from metricshuffle.declared import Stored
from metricshuffle.errors import PlanError


class SavedPlan(Stored):
    """A plan that is a file. The digest catches accidents, not attackers."""

    stored_as: ClassVar[str] = "a plan"
    known_as: ClassVar[str]
    """The format of its files."""
    digest: str = ""

    @model_validator(mode="after")
    def _unharmed(self) -> Self:
        content = self.model_dump(mode="json", exclude={"digest"})
        expected = hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
        if not self.digest:
            object.__setattr__(self, "digest", expected)
        elif self.digest != expected:
            raise ValueError("its digest does not match its content: the file was edited or damaged; make the plan again")
        return self

    @classmethod
    def check_stored(cls, data: Any) -> None:
        named = data.get("format") if isinstance(data, dict) else None
        if named != cls.known_as:
            reader = {"metricshuffle-user-plan/1": "UserPlan", "metricshuffle-histogram-plan/1": "HistogramPlan"}.get(str(named))
            hint = f"; read it in Python with {reader}.load" if reader else ""
            raise PlanError(f"this is not a plan of this kind: its format is {named!r}, not {cls.known_as!r}{hint}.")
        if not data.get("digest"):
            raise PlanError("this plan has no digest; make the plan again.")

    def save(self, path: str) -> None:
        from metricshuffle.planning.files import write_text

        write_text(path, self.to_json() + "\n")

    @classmethod
    def load(cls, path: str) -> Self:
        from metricshuffle.planning.files import read_text

        return cls.from_json(read_text(path))


One = TypeVar("One")


class ChosenPlan(SavedPlan, Generic[One]):
    """A plan that keeps every candidate it compared, and which one it chose."""

    chosen: int
    candidates: tuple[One, ...]

    @model_validator(mode="after")
    def _chosen_exists(self) -> Self:
        if not 0 <= self.chosen < len(self.candidates):
            raise ValueError(f"chosen must be the index of a candidate, got {self.chosen}")
        return self

    @property
    def choice(self) -> One:
        """The chosen candidate."""
        return self.candidates[self.chosen]
