"""(c) Seeded reports, tallies, shuffled batches and releases of every small plan, as bytes."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.catalogue.small_plans import SMALL, plan_of, values_of
from tests.golden.corpus.masks import digest, seeded_system
from tests.golden.corpus.recording import Fields, Items

import metricshuffle as ms


def _head(data: bytes) -> str:
    """Readable line at the start of a file of reports, or of a tally."""
    return re.sub(rb"[^ -~]", b".", data[:400].partition(b"\n")[0]).decode()


def _bytes(name: str, data: bytes) -> Fields:
    return {f"{name} size": len(data), f"{name} sha256": digest(data), f"{name} head": _head(data)}


def without_damage(plan: ms.Plan) -> ms.Plan:
    """The plan with a task as the recorded version made it: it claims no damage."""
    fields = {name: getattr(plan.task, name) for name in ms.Task.model_fields if name != "digest"}
    return plan.model_copy(update={"task": ms.Task(**fields | {"damage": None})})


def _round(name: str) -> Fields:
    """Record a round under `seeded_system`.

    Batch ids and the order of released messages come from the operating system.
    """
    planned = without_damage(plan_of(name))
    values = values_of(name)
    fields: Fields = {}
    if (
        SMALL[name].trusted == "curator"
    ):  # nobody sends reports: the curator adds noise to what she counts
        release = planned.run(values, ms.Randomness.seeded(f"golden {name}"))
    else:
        reports: Any = planned.randomize(values, ms.Randomness.seeded(f"golden {name}"))
        fields["messages"] = [
            str(reports.messages.dtype),
            list(reports.messages.shape),
            digest(reports.messages.tobytes()),
        ]
        fields |= _bytes(
            "tally", planned.task.tally().add(reports.messages, seeded=True).to_bytes()
        )
        shuffled = planned.shuffle(reports)
        fields |= _bytes("shuffled", shuffled.to_bytes())
        release = planned.estimate(shuffled)
    text = release.to_json()
    return {
        **fields,
        "release": json.dumps(json.loads(text), indent=0, sort_keys=True, ensure_ascii=False),
        "release sha256": digest(text),
    }


def record() -> Items:
    items: Items = {}
    for name in SMALL:
        with seeded_system(f"golden {name}"):
            items[name] = _round(name)
    return items
