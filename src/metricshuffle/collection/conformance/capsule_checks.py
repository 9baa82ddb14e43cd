"""Checks of capsules and binary HTTP against the vectors in docs/spec/vectors/oblivious.json."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from metricshuffle.collection.binary_http import BinaryRequest, BinaryResponse, MalformedMessage
from metricshuffle.collection.capsules import GatewayKey, KeyConfiguration
from metricshuffle.collection.conformance.requirements import NotConforming, expect
from metricshuffle.collection.recipes import JsonObject
from metricshuffle.collection.sealed_boxes import NotOpened
from metricshuffle.errors import PlanError


def capsule_checks(vectors: JsonObject) -> Iterator[tuple[str, Callable[[], None]]]:
    """Checks of all vectors, with the numbers of their requirements."""
    for case in vectors["capsules"]:
        yield "O1", partial(_check_configuration, case)
        yield "O2", partial(_check_capsule, case)
        yield "O3", partial(_check_fresh, case)
    for case in vectors["refused"]:
        yield "O1", partial(_check_refused_configuration, case)
    for case in vectors["messages"]:
        yield "O4", partial(_check_message, case)
    for case in vectors["malformed"]:
        yield "O4", partial(_check_malformed, case)
    for case in vectors["forged"]:
        yield "O5", partial(_check_forged, vectors["capsules"][1], case)


def _gateway(case: JsonObject) -> GatewayKey:
    return GatewayKey(
        bytes.fromhex(case["private"]), KeyConfiguration(bytes.fromhex(case["configuration"])).id
    )


def _check_configuration(case: JsonObject) -> None:
    configuration = KeyConfiguration(bytes.fromhex(case["configuration"]))
    own = _gateway(case).configuration
    expect(configuration.public == own.public, f"{case['name']}: another key.")


def _check_refused_configuration(case: JsonObject) -> None:
    try:
        KeyConfiguration(bytes.fromhex(case["configuration"]))
    except PlanError:
        return
    raise NotConforming(f"a configuration was read, although {case['name']}.")


def _check_capsule(case: JsonObject) -> None:
    """Open and make a capsule and its answer."""
    configuration = KeyConfiguration(bytes.fromhex(case["configuration"]))
    request = bytes.fromhex(case["request"])
    capsule, of_client = configuration.sealed(request, bytes.fromhex(case["ephemeral"]))
    expect(capsule.hex() == case["capsule"], f"{case['name']}: another capsule.")
    opened, of_gateway = _gateway(case).opened(capsule)
    expect(opened == request, f"{case['name']}: another request.")
    expect(of_client.secret.hex() == case["secret"], f"{case['name']}: another secret.")
    answer = of_gateway.sealed(bytes.fromhex(case["response"]), bytes.fromhex(case["nonce"]))
    expect(answer.hex() == case["answer"], f"{case['name']}: another answer.")
    expect(of_client.opened(answer).hex() == case["response"], f"{case['name']}: response.")


def _check_fresh(case: JsonObject) -> None:
    configuration = KeyConfiguration(bytes.fromhex(case["configuration"]))
    capsules = [configuration.sealed(bytes.fromhex(case["request"]))[0] for _ in range(2)]
    expect(capsules[0][7:39] != capsules[1][7:39], "a key was used twice.")


def _check_message(case: JsonObject) -> None:
    encoded = bytes.fromhex(case["encoded"])
    headers = [list(line) for line in case["headers"]]
    message: BinaryRequest | BinaryResponse
    if "control" in case:
        message = BinaryRequest.decoded(encoded)
        control = [message.method, message.scheme, message.authority, message.path]
        expect(control == case["control"], f"{case['name']}: {control}.")
    else:
        message = BinaryResponse.decoded(encoded)
        expect(message.status == case["status"], f"{case['name']}: {message.status}.")
    expect([list(line) for line in message.headers] == headers, f"{case['name']}: fields.")
    expect(message.content.hex() == case["content"], f"{case['name']}: content.")


def _check_malformed(case: JsonObject) -> None:
    for kind in (BinaryRequest, BinaryResponse):
        try:
            kind.decoded(bytes.fromhex(case["encoded"]))
        except MalformedMessage:
            continue
        raise NotConforming(f"a message was read, although {case['name']}.")


def _check_forged(capsule: JsonObject, case: JsonObject) -> None:
    _, answer_key = _gateway(capsule).opened(bytes.fromhex(capsule["capsule"]))
    try:
        answer_key.opened(bytes.fromhex(case["answer"]))
    except NotOpened:
        return
    raise NotConforming(f"an answer was opened, although it is {case['name']}.")
