"""(d) Test vectors of the JavaScript client: regenerated, and the digest of the stored file."""

from __future__ import annotations

import json

from tests.collection.client_vectors import FILE, text
from tests.golden.corpus.masks import digest
from tests.golden.corpus.recording import Items


def record() -> Items:
    made = text()
    parts: Items = {
        f"vectors: {name}": {"sha256": digest(json.dumps(content, sort_keys=True))}
        for name, content in json.loads(made).items()
    }
    return {
        **parts,
        "vectors.json": {
            "sha256 made anew": digest(made),
            "sha256 of the file": digest(FILE.read_bytes()),
        },
    }
