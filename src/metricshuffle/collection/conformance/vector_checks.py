"""Checks of this implementation against the vectors in docs/spec/vectors."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from metricshuffle.collection.admission_tokens import (
    TokenRejected,
    TokenRequest,
    TokenVerifier,
    challenge_of,
    issuer_name,
)
from metricshuffle.collection.blind_signatures import SignatureRejected
from metricshuffle.collection.conformance.capsule_checks import capsule_checks
from metricshuffle.collection.conformance.requirements import (
    ConformanceLine,
    NotConforming,
    expect,
    lines_of,
)
from metricshuffle.collection.keys import release_token, token_hash
from metricshuffle.collection.output_runs import OrderCheck, OutputRuns, pack_lengths
from metricshuffle.collection.recipes import JsonObject
from metricshuffle.collection.sealed_boxes import BoxFormat, NotOpened, PrivateKey
from metricshuffle.collection.shuffler.external_sort import ExternalSort
from metricshuffle.collection.signatures import Claim, is_signed
from metricshuffle.collection.terms import Collection, canonical
from metricshuffle.errors import InputError, PlanError
from metricshuffle.protocols.protocol import Layout
from metricshuffle.tasks.message_format import MessageFormat

NumberedCheck = tuple[str, Callable[[], None]]
ENC_BYTES = 32


def check_vectors(folder: Path) -> Iterable[ConformanceLine]:
    """Check all vectors of a folder, and yield a line for each requirement they cover."""
    names = ("boxes", "payloads", "collections", "outputs", "tokens", "oblivious")
    boxes, payloads, collections, outputs, tokens, oblivious = (
        _read(folder / f"{name}.json") for name in names
    )
    checks: list[NumberedCheck] = []
    for case in boxes["cases"]:
        checks += _box_checks(case)
    checks += [("P1", partial(_check_payloads, case)) for case in payloads["cases"]]
    checks += [("P2", partial(_check_payloads, case)) for case in payloads["cases"]]
    piled = [case for case in payloads["cases"] if not case["recipe"]["pile"]]
    checks += [("P3", partial(_check_payloads, case)) for case in piled]
    for case in collections["valid"]:
        checks += [(number, partial(_check_valid, case)) for number in ("C1", "C3", "B7")]
    checks += [
        (case["requirement"], partial(_check_refused, case)) for case in collections["refused"]
    ]
    for case in tokens["cases"]:
        checks += [
            ("K1", partial(_check_challenge, case)),
            ("K2", partial(_check_tokens, case)),
            ("K3", partial(_check_request, case)),
            ("K4", partial(_check_answers, case)),
        ]
    for case in outputs["outputs"]:
        checks += [(number, partial(_check_output, case)) for number in ("R1", "R2")]
    checks += [("R7", partial(_check_piles, case)) for case in outputs["piles"]]
    checks += [("R3", partial(_check_token, case)) for case in outputs["tokens"]]
    checks += [
        ("R4", partial(_check_countersignature, case)) for case in outputs["countersignatures"]
    ]
    checks += capsule_checks(oblivious)
    return lines_of("vectors", checks)


def _read(path: Path) -> JsonObject:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise InputError(
            f"cannot read {path}; give the folder docs/spec/vectors of the repository."
        ) from None
    if not isinstance(content, dict):
        raise InputError(f"{path} is not a file of vectors.")
    return content


def _format_of(case: JsonObject) -> BoxFormat:
    return BoxFormat(
        bytes.fromhex(case["digest"]),
        case["payload"],
        case["messages"],
        len(case["ticket"]) // 2,
        case["hops"],
        case.get("piles", 0),
    )


def _private(case: JsonObject, layer: int) -> PrivateKey:
    return PrivateKey(bytes.fromhex(case["layers"][layer]["private"]))


def _box_checks(case: JsonObject) -> Iterator[NumberedCheck]:
    yield from (("B1", partial(_check_opening, case)), ("B5", partial(_check_opening, case)))
    yield from (("B3", partial(_check_opening, case)), ("B4", partial(_check_opening, case)))
    yield "B2", partial(_check_info, case)
    if "piles" in case:
        yield "B9", partial(_check_info, case)
        yield "B9", partial(_check_opening, case)
    yield "B6", partial(_check_fresh_keys, case)
    yield "B7", partial(_check_size, case)
    for refused in case["refused"]:
        yield "B8", partial(_check_not_opened, case, refused)


def _check_opening(case: JsonObject) -> None:
    """Open a report layer by layer; what we seal opens in the same way."""
    sealing = _format_of(case)
    layers = [_private(case, layer) for layer in range(case["hops"] + 1)]
    own = sealing.report(
        [bytes.fromhex(payload) for payload in case["payloads"]],
        [key.public for key in layers],
        bytes.fromhex(case["ticket"]),
    )
    for report in (bytes.fromhex(case["report"]), own):
        ticket, boxes = sealing.open_report(report, layers[-1])
        expect(ticket.hex() == case["ticket"], f"{case['name']}: another ticket.")
        if report is not own:
            inner = [box.hex() for box in boxes]
            expect(inner == case["boxes"], f"{case['name']}: other boxes.")
        for layer in range(case["hops"] - 1, -1, -1):
            boxes = [
                sealing.open_box(box, layers[layer], layer, place // sealing.each)
                for place, box in enumerate(boxes)
            ]
        payloads = [payload.hex() for payload in boxes]
        expect(payloads == case["payloads"], f"{case['name']}: other payloads.")


def _check_info(case: JsonObject) -> None:
    sealing = _format_of(case)
    for layer in case["layers"]:
        info = sealing.info(layer["layer"]).hex()
        expect(info == layer["info"], f"{case['name']}: another info, {info}.")
        key = PrivateKey(bytes.fromhex(layer["private"]))
        expect(key.public.data.hex() == layer["public"], f"{case['name']}: another key.")


def _check_fresh_keys(case: JsonObject) -> None:
    """Seal the same payload many times: no encapsulated key comes twice."""
    sealing = _format_of(case)
    keys = [_private(case, layer).public for layer in range(case["hops"])]
    payload = bytes.fromhex(case["payloads"][0])
    boxes = [box for _ in range(3) for box in sealing.boxes([payload] * case["messages"], keys)]
    expect(len({box[:ENC_BYTES] for box in boxes}) == len(boxes), "a key was used twice.")


def _check_size(case: JsonObject) -> None:
    size = _format_of(case).report_size
    expect(
        size == case["report_size"] == len(case["report"]) // 2, f"{case['name']}: {size} bytes."
    )


def _check_not_opened(case: JsonObject, refused: JsonObject) -> None:
    try:
        _format_of(case).open_report(bytes.fromhex(refused["report"]), _private(case, case["hops"]))
    except NotOpened:
        return
    raise NotConforming(f"{case['name']}: opened, although {refused['name']}.")


def _check_payloads(case: JsonObject) -> None:
    recipe = case["recipe"]
    layout = Layout(
        np.dtype(f"<u{recipe['number']}"),
        recipe["piles"] * recipe["each"] * recipe["width"],
        recipe["piles"],
        recipe["width"],
    )
    form = MessageFormat(layout, by_pile=not recipe["pile"])
    row = np.array([[int(number) for number in case["numbers"]]], dtype=layout.type)
    [payloads] = form.split_messages(row)
    expect([payload.tobytes().hex() for payload in payloads] == case["payloads"], str(recipe))


def _check_valid(case: JsonObject) -> None:
    served = case["served"].encode()
    collection = Collection.read(served, case["digest"])
    keys = [key.data.hex() for key in collection.keys]
    expect(keys == case["keys"], f"{case['name']}: other keys, or in another order.")
    expect(collection.sealing.report_size == case["report_size"], f"{case['name']}: length.")
    expect(canonical(json.loads(served)) == served, f"{case['name']}: not canonical.")
    try:
        Collection.read(served + b" ", case["digest"])
    except PlanError:
        return
    raise NotConforming(f"{case['name']}: read although its digest differs.")


def _check_refused(case: JsonObject) -> None:
    try:
        collection = Collection.read(case["served"].encode(), case["digest"])
        _ = collection.keys
    except PlanError:
        return
    raise NotConforming(f"read, although {case['name']}.")


def _verifier(case: JsonObject) -> TokenVerifier:
    return TokenVerifier.of(case["url"], bytes.fromhex(case["key"]), bytes.fromhex(case["digest"]))


def _request(case: JsonObject) -> TokenRequest:
    random = {name: bytes.fromhex(case[name]) for name in ("nonce", "salt")}
    return TokenRequest.new(_verifier(case), **random, factor=int(case["factor"], 16))


def _check_challenge(case: JsonObject) -> None:
    challenge = challenge_of(issuer_name(case["url"]), bytes.fromhex(case["digest"]))
    expect(challenge.hex() == case["challenge"], f"{case['name']}: another challenge.")


def _check_tokens(case: JsonObject) -> None:
    verifier = _verifier(case)
    try:
        verifier.nonce_of(bytes.fromhex(case["token"]))
    except TokenRejected:
        raise NotConforming(f"{case['name']}: a valid token is refused.") from None
    for refused in case["refused"]:
        try:
            verifier.nonce_of(bytes.fromhex(refused["token"]))
        except TokenRejected:
            continue
        raise NotConforming(f"{case['name']}: accepted, although {refused['name']}.")


def _check_request(case: JsonObject) -> None:
    expect(_request(case).request.hex() == case["request"], f"{case['name']}: another request.")


def _check_answers(case: JsonObject) -> None:
    """Make a token of the right answer, and none of the wrong one."""
    verifier, asked = _verifier(case), _request(case)
    token = asked.token(verifier, bytes.fromhex(case["response"])).hex()
    expect(token == case["token"], f"{case['name']}: another token.")
    try:
        asked.token(verifier, bytes.fromhex(case["wrong_response"]))
    except SignatureRejected:
        return
    raise NotConforming(f"{case['name']}: a wrong answer is used.")


def _check_output(case: JsonObject) -> None:
    reports = [b"".join(map(bytes.fromhex, report)) for report in case["reports"]]
    messages = len(case["reports"][0])
    size = len(reports[0]) // messages
    # The order in which reports arrived changes nothing.
    for order in (reports, reports[::-1]):
        stream = io.BytesIO()
        result = ExternalSort(order.__iter__, size, messages, len(order)).written(stream)
        observed = (stream.getvalue().hex(), result.digest, result.people, len(result.shared))
        expected = (case["output"], case["sha256"], case["people"], case["left_out"])
        expect(observed == expected, f"{case['name']}: another output.")


def _check_piles(case: JsonObject) -> None:
    """Read the lengths and runs of an output, and mix the same boxes again."""
    output = bytes.fromhex(case["output"])
    reports = [[bytes.fromhex(box) for box in report] for report in case["reports"]]
    dummies = [[bytes.fromhex(box) for box in pile] for pile in case["dummies"]]
    size = len(reports[0][0])
    each = len(reports[0]) // len(dummies)
    lengths = tuple(case["people"] * each + len(pile) for pile in dummies)
    runs = OutputRuns(lengths, size, pack_lengths(lengths))
    check = OrderCheck(runs)
    check.feed(output)
    stream = io.BytesIO(output)
    stream.seek(len(runs.head))
    for pile, part in runs.read_parts(stream, runs.total):
        boxes = [box for report in reports for box in report[each * pile : each * (pile + 1)]]
        own = b"".join(sorted([*boxes, *dummies[pile]]))
        expect(part == own, f"{case['name']}: another run of pile {pile}.")
    expect(output.startswith(runs.head), f"{case['name']}: other lengths.")
    digest = hashlib.sha256(output).hexdigest()
    expect((len(output), digest) == (runs.total, case["sha256"]), f"{case['name']}: bytes.")


def _check_token(case: JsonObject) -> None:
    key = PrivateKey(bytes.fromhex(case["private"]))
    token = release_token(key)
    expect(
        (key.public.data.hex(), token, token_hash(token))
        == (case["public"], case["token"], case["release"]),
        "another token.",
    )


def _check_countersignature(case: JsonObject) -> None:
    claim = Claim(case["collection"], case["asker"], case["output"])
    expect(claim.countersigned.hex() == case["message"], "another message is signed.")
    signature = case["countersignature"]
    expect(is_signed(case["witness"], claim.countersigned, signature), "not accepted.")
    other = Claim(case["collection"], case["asker"], case["asker"]).countersigned
    expect(not is_signed(case["witness"], other, signature), "accepted for another output.")
