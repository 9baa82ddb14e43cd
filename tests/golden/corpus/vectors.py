"""(d) The test vectors of the JavaScript client: made anew, and the digest of the file that is in the repository."""

from __future__ import annotations

import json

from tests.golden.corpus.masks import digest
from tests.golden.corpus.recording import Items
from tests.service.client_vectors import FILE, text


def record() -> Items:
    made = text()
    parts: Items = {
        f"vectors: {name}": {"sha256": digest(json.dumps(content, sort_keys=True))} for name, content in json.loads(made).items()
    }
    return {**parts, "vectors.json": {"sha256 made anew": digest(made), "sha256 of the file": digest(FILE.read_bytes())}}
