"""(a) Plan files of the sixty settings; those of documents are in section f."""

from __future__ import annotations

import hashlib
import json
from unittest.mock import patch

from tests.golden.corpus.recording import Items
from tests.golden.settings import SETTINGS, Described, query_of

import metricshuffle as ms
from metricshuffle.planning.candidates import registry
from metricshuffle.planning.plan_request import PlanRequest

LATER_FAMILIES = ("shuffler_noise, metricshuffle.planning.candidates.dummy_calibration",)
"""Families that are younger than the recording, and would change its choices."""


def plan_of_setting(setting: Described) -> ms.Plan:
    query = query_of(setting["query"])
    target = ms.Target(**setting["target"])
    options = {"protocols": setting["only"], **setting["options"]}
    registry.all_offers(PlanRequest(query, target, setting["users"]).setting)  # imports families
    recorded = {
        name: offers for name, offers in registry._FAMILIES.items() if name not in LATER_FAMILIES
    }
    with patch.object(registry, "_FAMILIES", recorded):
        return ms.plan(query, target, setting["users"], setting["honest"], **options)


def record() -> Items:
    items: Items = {}
    for setting in SETTINGS:
        planned = plan_of_setting(setting)
        text = planned.to_json()
        items[setting["name"]] = {
            "plan": json.dumps(json.loads(text), indent=0, sort_keys=True, ensure_ascii=False),
            "sha256 of the file": hashlib.sha256(text.encode()).hexdigest(),
            "digest": planned.digest,
        }
    return items
