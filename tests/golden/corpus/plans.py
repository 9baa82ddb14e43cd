"""(a) Plan files of the sixty settings; those of documents are among the files that section f records."""

from __future__ import annotations

import hashlib
import json

from tests.golden.corpus.recording import Items
from tests.golden.settings import SETTINGS, query_of

import metricshuffle as ms


def record() -> Items:
    items: Items = {}
    for setting in SETTINGS:
        planned = ms.plan(
            query_of(setting["query"]), ms.Target(**setting["target"]), setting["users"], setting["honest"],
            protocols=setting["only"], **setting["options"],
        )  # fmt: skip
        text = planned.to_json()
        items[setting["name"]] = {
            "plan": json.dumps(json.loads(text), indent=0, sort_keys=True, ensure_ascii=False),
            "sha256 of the file": hashlib.sha256(text.encode()).hexdigest(),
            "digest": planned.digest,
        }
    return items
