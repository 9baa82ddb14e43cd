"""JSON Schema of a collection: it accepts and refuses what the code does, but for relations."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from pydantic import ValidationError
from tests.tables import check_all

from metricshuffle.collection.terms import EXTENSIONS, Hop, HopWitness, Issuer, Party, Terms

SPECIFICATION = Path(__file__).parents[2] / "docs" / "spec"
SCHEMA = json.loads((SPECIFICATION / "collection.schema.json").read_text())
VECTORS = json.loads((SPECIFICATION / "vectors" / "collections.json").read_text())["valid"]
DOCUMENTS: list[dict[str, Any]] = [json.loads(vector["served"]) for vector in VECTORS]
WITNESS = {"url": "https://witness.example", "key": "ab" * 32, "asker": "cd" * 32}
ODD: tuple[object, ...] = (
    *(None, True, 0, 1, -1, 7, 1.5, 2**53, 10**30),
    *(
        "",
        "x",
        "7",
        "ab" * 32,
        "AB" * 32,
        "ab" * 16,
        "open",
        "tickets",
        "tokens",
        "a\x00b",
        "x" * 101,
    ),
    *("2030-01-01T00:00:00Z", "2030-01-01", "https://hop.example", "https://hop.example/"),
    *([], {}, [1, 1], [0, 1], [1, 1, 1], {"a": 1}),
)
RELATED = {"admission", "ticket", "minimum", "maximum", "opens", "closes", "extends", "split"}
RELATED |= {"messages", "piles", "issuer"}
"""Fields whose relation to others is checked by the code alone."""
STRICTER = {"messages", "payload", "minimum", "maximum", "apart"}
"""Fields for which the schema refuses what the code refuses only when it reads the task, or writes
in another way."""


def is_valid(document: object) -> bool:
    return bool(Draft202012Validator(SCHEMA).is_valid(document))


def is_read(document: dict[str, Any]) -> bool:
    """Whether the code reads it, from the same JSON."""
    try:
        Terms.model_validate_json(json.dumps(document))
    except ValidationError:
        return False
    return True


def test_the_schema_has_the_fields_of_the_code() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    hop = SCHEMA["$defs"]["hop"]
    for schema, model in (
        (SCHEMA, Terms),
        (SCHEMA["$defs"]["party"], Party),
        (hop, Hop),
        (hop["properties"]["witness"], HopWitness),
        (SCHEMA["$defs"]["issuer"], Issuer),
    ):
        assert set(schema["properties"]) == set(model.model_fields)
        assert set(schema["required"]) == set(model.model_fields) - {"witness", *EXTENSIONS}


def test_all_valid_vectors_follow_it() -> None:
    for document in DOCUMENTS:
        assert is_valid(document)
        for field in document:
            assert not is_valid({name: document[name] for name in document if name != field})
        assert not is_valid({**document, "more": 1})


@check_all("field", sorted(DOCUMENTS[0]))
def test_it_agrees_with_the_code_about_odd_values(field: str) -> None:
    for document in DOCUMENTS:
        for value in ODD:
            changed = {**document, field: value}
            valid, read = is_valid(changed), is_read(changed)
            if field not in RELATED:
                assert not valid or read, value
            if field not in STRICTER:
                assert valid or not read, value


@pytest.mark.parametrize("part", ["key", "name", "url"])
def test_it_agrees_with_the_code_about_odd_issuers(part: str) -> None:
    document = next(copy.deepcopy(each) for each in DOCUMENTS if "issuer" in each)
    key = document["issuer"]["key"]
    keys = (key[:-1] + "3", "31" + key[2:], key.upper(), key[:-12] + "0" + key[-11:], key + "00")
    urls = (f"https://issuer.example/{more}" for more in ("?a", "a#b", "a@b", 'a"b', "a=b", "a."))
    for value in (*ODD, *keys, *urls):
        document["issuer"][part] = value
        assert is_valid(document) == is_read(document), value


@pytest.mark.parametrize("part", ["key", "release", "name", "url", "witness"])
def test_it_agrees_with_the_code_about_odd_hops(part: str) -> None:
    document = copy.deepcopy(DOCUMENTS[0])
    for value in (*ODD, WITNESS, {**WITNESS, "key": "x"}, {**WITNESS, "more": 1}):
        document["hops"][0][part] = value
        if part == "witness" and value is None:
            continue  # the code reads it as absent, and never writes it
        assert is_valid(document) == is_read(document), value
