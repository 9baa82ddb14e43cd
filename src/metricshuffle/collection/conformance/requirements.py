"""Numbered requirements of the specification, and results of checking them.

The sentences are copied from docs/spec, which has them in context; a test compares both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from metricshuffle.errors import MetricShuffleError

CheckMode = Literal["vectors", "server", "client"]
Result = Literal["ok", "failed", "not run"]


class NotConforming(MetricShuffleError):
    """A requirement is not met; the message says what was observed."""


class NotChecked(MetricShuffleError):
    """A requirement cannot be checked here; the message says what is missing."""


@dataclass(frozen=True)
class SpecRequirement:
    """Numbered requirement; `modes` lists what can check it, and may be empty."""

    number: str
    text: str
    modes: tuple[CheckMode, ...] = ()


def _requirements(*rows: tuple[str, str, str]) -> dict[str, SpecRequirement]:
    names: dict[str, CheckMode] = {"v": "vectors", "s": "server", "c": "client"}
    return {
        number: SpecRequirement(number, text, tuple(names[letter] for letter in modes))
        for number, modes, text in rows
    }


REQUIREMENTS = _requirements(
    # Boxes
    (
        "B1",
        "v",
        "Boxes MUST be sealed by HPKE (RFC 9180) in base mode with DHKEM(X25519, HKDF-SHA256), "
        "HKDF-SHA256 and AES-128-GCM, with empty associated data.",
    ),
    (
        "B2",
        "v",
        "The info of a box MUST be the 20 bytes of `metricshuffle-box/1` and a zero byte, one "
        "byte for the layer, and the 32 bytes of the digest of the collection.",
    ),
    (
        "B3",
        "v",
        "A box MUST be the encapsulated key (32 bytes), the ciphertext and the tag (16 bytes), "
        "without any framing.",
    ),
    (
        "B4",
        "v",
        "A payload MUST be sealed to the analyst (layer 0), then to the last hop (layer 1), and "
        "so on to the second hop, each time as the plaintext of the next layer.",
    ),
    (
        "B5",
        "v",
        "A report MUST be one box of layer k, sealed to the first of k hops, whose plaintext is "
        "the ticket (0 or 16 bytes) or the token (354 bytes), and then all inner boxes of the "
        "person.",
    ),
    (
        "B6",
        "vc",
        "Every box MUST have an encapsulated key of its own; no key, context or nonce is shared "
        "by two boxes.",
    ),
    (
        "B7",
        "vc",
        "A report MUST have ticket + messages * (payload + 48 * hops) + 48 bytes.",
    ),
    (
        "B8",
        "v",
        "A box that was changed, or sealed to another key, layer or collection, MUST be refused.",
    ),
    (
        "B9",
        "v",
        "If a collection has piles, the info of a box inside of a report MUST be the 20 bytes of "
        "`metricshuffle-box/2` and a zero byte, the layer, the digest, and the index of its pile "
        "from 0 in 4 bytes, little endian.",
    ),
    # Payloads
    (
        "P1",
        "v",
        "A payload MUST be the index of its group and then its numbers, all unsigned and little "
        "endian, in the sizes that the recipe names.",
    ),
    (
        "P2",
        "vc",
        "The payloads of a person MUST be sorted by their bytes before they are sealed.",
    ),
    (
        "P3",
        "v",
        "If a collection has piles, a report MUST have the payloads of the first pile first, those "
        "of each pile sorted by their bytes, and no payload names its pile.",
    ),
    # Collections
    (
        "C1",
        "vsc",
        "The digest of a collection MUST be the SHA-256 of its bytes as they are served; nobody "
        "serializes them again.",
    ),
    (
        "C2",
        "vc",
        "A reader MUST refuse a collection of another format or suite than it knows.",
    ),
    (
        "C3",
        "v",
        "A collection MUST be canonical JSON (RFC 8785) in which all numbers are whole and "
        "below 2^53; larger numbers and fractions are text.",
    ),
    (
        "C4",
        "v",
        "A reader MUST refuse a collection whose ticket and admission do not match, whose "
        "times are not in order, or whose minimum exceeds its maximum.",
    ),
    (
        "C5",
        "v",
        "A collection MUST have 1 to 8 hops, and they and the analyst MUST have different keys.",
    ),
    (
        "C6",
        "vc",
        "A reader MUST refuse a public key whose shared secret would be zero (a point of low "
        "order).",
    ),
    (
        "C7",
        "v",
        "A collection MUST have the format `metricshuffle-collection/2` if it has `piles`, "
        "`issuer` or `gateway`, and only then; piles divide its messages.",
    ),
    # HTTP
    (
        "H1",
        "s",
        "GET of a collection MUST be answered by 200 and its bytes, of type application/json.",
    ),
    ("H2", "s", "A call for an unknown collection MUST be answered by 404."),
    (
        "H3",
        "s",
        "A report MUST be posted with Content-Length and not in chunks; otherwise it is answered "
        "by 411.",
    ),
    ("H4", "s", "A body that is longer than a report MUST be answered by 413."),
    (
        "H5",
        "s",
        "A body that is shorter, or that does not open, MUST be answered by 422, with the same "
        "body whatever is wrong with it.",
    ),
    ("H6", "s", "Another method on the path of reports MUST be answered by 405 with Allow."),
    (
        "H7",
        "s",
        "A report of a page of another site (Origin) that is not allowed MUST be answered by 403.",
    ),
    (
        "H8",
        "s",
        "Every answer MUST have Cache-Control: no-store, and every error a JSON object with "
        "`error`, a sentence.",
    ),
    (
        "H9",
        "s",
        "A report MUST be stored durably before it is answered by 204 with an empty body.",
    ),
    (
        "H10",
        "s",
        "The same bytes MUST get the same answer while the collection is open, and count once.",
    ),
    (
        "H11",
        "s",
        "A report in which a box occurs twice, also in two piles, MUST be answered like one that "
        "does not open.",
    ),
    (
        "H12",
        "s",
        "429 and 503 MUST have Retry-After, in seconds.",
    ),
    # States
    (
        "T1",
        "s",
        "GET of the state MUST be answered by a JSON object with `state`, `phase`, `reason`, "
        "`closes` and `until`.",
    ),
    (
        "T2",
        "s",
        "The number of people MUST be null until the collection is shuffled.",
    ),
    (
        "T3",
        "s",
        "States MUST only move forward: open, sealed, shuffled, erased, released, purged; or "
        "aborted.",
    ),
    (
        "T4",
        "s",
        "After a collection is sealed or aborted every report MUST be answered by 410, stored "
        "or not.",
    ),
    # Tokens
    (
        "C8",
        "v",
        "A collection MUST have an `issuer` if its admission is `tokens`, and only then; the "
        "origin of its `url` is that of no hop, and its `key` is one of RSASSA-PSS with 2,048 bits "
        "and the exponent 65537, encoded as RFC 9578, section 6.5, asks.",
    ),
    (
        "K1",
        "v",
        "The challenge of a token MUST be a TokenChallenge (RFC 9577, section 2.1) of type 2, with "
        "the host (and port) of the issuer's `url` as the name of the issuer, the digest of the "
        "collection as the redemption context, and no origin.",
    ),
    (
        "K2",
        "v",
        "A token MUST be the 354 bytes of RFC 9577, section 2.2: type, nonce, SHA-256 of the "
        "challenge, SHA-256 of the issuer's key, and a signature of all of these (RSASSA-PSS with "
        "SHA-384 and a salt of 48 bytes).",
    ),
    (
        "K3",
        "v",
        "A request MUST be the 259 bytes of RFC 9578, section 6.1: type, last byte of the SHA-256 "
        "of the key, and the message, blinded as RSABSSA-SHA384-PSS-Deterministic (RFC 9474) with "
        "a factor for this message only.",
    ),
    (
        "K4",
        "v",
        "A client MUST NOT use an answer whose 65537th power is not the blinded message of its "
        "request, or that makes no valid token.",
    ),
    (
        "K5",
        "",
        "A client MUST store a request, and what unblinds its answer, durably before it sends it, "
        "and send the same bytes whenever it asks again.",
    ),
    (
        "K6",
        "",
        "An issuer MUST answer the same request by the same bytes, and sign one request for a "
        "person.",
    ),
    # Admission
    ("A1", "s", "An unknown ticket MUST be answered by 403."),
    (
        "A2",
        "s",
        "A ticket that was spent on another report MUST be answered by 409.",
    ),
    (
        "A3",
        "s",
        "A token that is not valid for the collection MUST be answered by 403, with the same body "
        "whatever is wrong with it.",
    ),
    (
        "A4",
        "s",
        "A token whose nonce was spent on another report MUST be answered by 409.",
    ),
    # Release
    (
        "R1",
        "v",
        "An output MUST be the inner boxes of all people, sorted by their bytes.",
    ),
    (
        "R2",
        "v",
        "Reports that share a box with another report MUST be left out, all of them, and "
        "counted publicly.",
    ),
    (
        "R3",
        "vs",
        "An output MUST be given only for the token of the party that the collection names: "
        'HKDF-SHA256 of its private key with the info "metricshuffle release"; otherwise the '
        "answer is 401.",
    ),
    (
        "R4",
        "v",
        'A countersignature MUST be the Ed25519 signature of "metricshuffle '
        'countersignature/1", a zero byte, the digest of the collection, the key of the asker and '
        "the digest of the output.",
    ),
    (
        "R5",
        "",
        "A shuffler MUST destroy the originals and its keys of a collection before it releases "
        "the output.",
    ),
    (
        "R6",
        "",
        "A shuffler MUST NOT release two different outputs of a collection, and an analyst or "
        "hop MUST refuse a second one.",
    ),
    (
        "R7",
        "v",
        "If a collection has piles, an output MUST be the number of boxes of each pile (8 bytes "
        "each, little endian) and then the boxes of each pile, sorted by their bytes.",
    ),
    (
        "R8",
        "",
        "A shuffler MUST draw its dummies for a collection once, before it is sealed, and mix no "
        "others.",
    ),
    # Clients
    (
        "L1",
        "c",
        "A client MUST compare the SHA-256 of the served bytes with the digest that it was "
        "given, and send nothing if they differ.",
    ),
    (
        "L2",
        "c",
        "A client MUST store the sealed report durably before it sends it, and send the same "
        "bytes again after 408, 425, 429, 5xx or no answer.",
    ),
    (
        "L3",
        "c",
        "A client MUST NOT send again before the time of Retry-After, up to 30 seconds, has "
        "passed.",
    ),
    (
        "L4",
        "c",
        "A client MUST NOT say that a report is stored unless it was answered by 204.",
    ),
    (
        "L5",
        "c",
        "After 410 or 422 a client MUST NOT randomize again, nor send other bytes.",
    ),
    (
        "L6",
        "c",
        "A client MUST make one report for a person, task and round; a second value sends nothing.",
    ),
    ("L7", "c", "A client MUST NOT follow redirects."),
    (
        "L8",
        "c",
        "A client MUST draw its randomness from the operating system; two people share no "
        "bytes of a box.",
    ),
    (
        "L9",
        "",
        "A client that keeps a ledger MUST write the entry of a report in the step that stores "
        "the sealed report, MUST keep it whatever becomes of the report until the person deletes "
        "it, and MUST NOT add up epsilons of different units.",
    ),
    (
        "L10",
        "",
        "A client MUST NOT make a report that exceeds a limit of the person without their "
        "consent, and MUST say so where it makes none.",
    ),
    # Oblivious HTTP
    (
        "O1",
        "v",
        "`gateway` MUST be a key configuration (RFC 9458, section 3) of 41 bytes in hexadecimal "
        "digits, for X25519, HKDF-SHA256 and AES-128-GCM, with a key of this collection alone.",
    ),
    (
        "O2",
        "v",
        "A capsule MUST be an encapsulated request of RFC 9458 (section 4.3) with these "
        "algorithms, and its answer an encapsulated response (section 4.4).",
    ),
    (
        "O3",
        "v",
        "A client MUST make a capsule of its own for every attempt, also with the same report.",
    ),
    (
        "O4",
        "v",
        "The content of a capsule MUST be a request in binary HTTP (RFC 9292) of known length, "
        "padded with zeros to a multiple of 1,024 bytes, and no longer than the request of a "
        "report needs.",
    ),
    (
        "O5",
        "v",
        "A client MUST NOT take anything for the answer of the shuffler that does not open with "
        "the key of its capsule.",
    ),
    (
        "O6",
        "s",
        "A capsule that opens MUST be answered by 200 with an answer of type message/ohttp-res, "
        "whatever the status inside.",
    ),
    (
        "O7",
        "s",
        "Through the gateway a shuffler MUST answer GET of the collection whose key opened the "
        "capsule, and POST of a report to it, as without a gateway, and everything else by 404 "
        "inside.",
    ),
    (
        "O8",
        "s",
        "All answers to reports MUST have 544 bytes, whatever the status inside.",
    ),
    (
        "O9",
        "s",
        "A capsule that does not open MUST be answered by 400, with the same body whatever is "
        "wrong with it.",
    ),
)


@dataclass(frozen=True)
class ConformanceLine:
    """Result of checking one requirement."""

    requirement: SpecRequirement
    result: Result
    detail: str = ""


def lines_of(
    mode: CheckMode, checks: Iterable[tuple[str, Callable[[], None]]]
) -> Iterable[ConformanceLine]:
    """Run checks, each of one requirement, and yield a line for every requirement of the mode.

    Several checks may belong to one requirement: it is met if all checks that ran passed. A
    requirement without a check is not run.
    """
    failures: dict[str, list[str]] = {}
    skipped: dict[str, list[str]] = {}
    passed: set[str] = set()
    for number, check in checks:
        try:
            check()
        except NotChecked as reason:
            skipped.setdefault(number, []).append(str(reason))
        except MetricShuffleError as failure:
            failures.setdefault(number, []).append(str(failure))
        else:
            passed.add(number)
    for number, requirement in REQUIREMENTS.items():
        if mode not in requirement.modes:
            continue
        if number in failures:
            yield ConformanceLine(requirement, "failed", " ".join(failures[number]))
        elif number in passed:
            yield ConformanceLine(requirement, "ok")
        else:
            reasons = skipped.get(number, ["there is no vector for it."])
            yield ConformanceLine(requirement, "not run", reasons[0])


def expect(condition: bool, observed: str) -> None:
    """Raise `NotConforming` unless a condition holds."""
    if not condition:
        raise NotConforming(observed)
