"""An issuer inside the test, and tokens for collections."""

from __future__ import annotations

from functools import cache
from typing import Any

from metricshuffle.collection.admission_tokens import TokenRequest, TokenVerifier
from metricshuffle.collection.blind_signatures import BlindSigner
from metricshuffle.collection.terms import Collection

ISSUER_URL = "http://127.0.0.1:8461/token-request"


@cache
def signer(number: int) -> BlindSigner:
    """Key of an issuer; other numbers have other keys."""
    return BlindSigner.new()


def issuer_terms(number: int = 0, url: str = ISSUER_URL) -> dict[str, Any]:
    """Terms of a collection that admits people by tokens."""
    return {"admission": "tokens", "issuer": {"url": url, "key": signer(number).public.spki.hex()}}


def verifier_of(collection: Collection) -> TokenVerifier:
    verifier = collection.token_verifier
    assert verifier is not None
    return verifier


def new_token(collection: Collection, number: int = 0) -> bytes:
    """Token for a collection, as its issuer gives it."""
    verifier = verifier_of(collection)
    asked = TokenRequest.new(verifier)
    return asked.token(verifier, signer(number).signature(asked.request[3:]))
