"""Benchmark of admission by tokens: `python -m benchmarks.bench_tokens`.

Processor time of an edge (with its openers) for a report, by kind of admission, in one run; and how
many reports an issuer and a shuffler together link by time. The attack is simple: the k-th report
belongs to the k-th request, or to the latest one. A cleverer one links more.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS
from tests.collection.issuers import issuer_terms, signer, verifier_of
from tests.collection.many_hosts import Hosts, many_hosts
from tests.collection.postgres_pair import postgres_pair
from tests.collection.running import load_task, new_tickets, post_report, report_of

from metricshuffle.collection.terms import Collection

LIMIT = 1.2
"""Largest processor time of an edge with tokens, relative to open admission."""
MESSAGES = 10
WARMING = 200
PEOPLE = 1_000
DAY = 86_400.0


def edge_seconds(hosts: Hosts) -> float:
    """Processor time of the edge and its openers so far."""
    psutil: Any = import_module("psutil")
    process = psutil.Process(hosts.edges[0].process.pid)
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return float(sum(each.user + each.system for each in times))


def sent_to_edge(hosts: Hosts, collection: Collection, reports: Sequence[bytes]) -> float:
    """Processor time of the edge for each of these reports."""
    url = hosts.url(0, collection.digest)
    end = time.monotonic() + 60
    while set(post_report(url, reports[:WARMING], 8).statuses) != {204}:
        if time.monotonic() > end:
            raise SystemExit(hosts.edges[0].log)
        time.sleep(0.2)
    before = edge_seconds(hosts)
    statuses = post_report(url, reports[WARMING:], 8).statuses
    if set(statuses) != {204}:
        raise SystemExit(f"answered by {set(statuses)}")
    return (edge_seconds(hosts) - before) / (len(reports) - WARMING)


def edge_costs(count: int, repeats: int) -> dict[str, float]:
    """Processor time of an edge for a report, the least of some runs, by admission."""
    costs: dict[str, float] = {}
    with (
        tempfile.TemporaryDirectory(prefix="ms-bench-") as folder,
        postgres_pair() as pair,
        many_hosts(Path(folder), pair.url, 1) as hosts,
    ):
        for number in range(1, 3 * repeats + 1, 3):
            task, tickets = load_task(MESSAGES, rounds=100), new_tickets(count)
            is_open = hosts.hub.opened(task, round=number)
            by_tickets = hosts.hub.opened(task, round=number + 1, tickets=tickets)
            by_tokens = hosts.hub.opened(task, round=number + 2, **issuer_terms(number))
            tokens = [quick_token(by_tokens, number) for _ in range(count)]
            for admission, collection, admitted in (
                ("open", is_open, [b""] * count),
                ("tickets", by_tickets, tickets),
                ("tokens", by_tokens, tokens),
            ):
                reports = [report_of(collection, each) for each in admitted]
                cost = sent_to_edge(hosts, collection, reports)
                costs[admission] = min(cost, costs.get(admission, cost))
    return costs


def quick_token(collection: Collection, number: int) -> bytes:
    """Token of an issuer of the test, signed without blinding, which is quicker."""
    signed = verifier_of(collection).token_input(random.Random().randbytes(32))
    padding = PSS(MGF1(hashes.SHA384()), 48)
    return signed + signer(number).private.sign(signed, padding, hashes.SHA384())


def linked_by_time(delay: float, chance: random.Random, people: int = PEOPLE) -> float:
    """Fraction of people whose report is linked with their request, by the better of two attacks.

    People ask at random times of a day, and send a random part of `delay` seconds later, or one to
    three seconds later if there is none.
    """
    asked = sorted(chance.uniform(0, DAY) for _ in range(people))
    shortest, longest = (0.0, delay) if delay else (1.0, 3.0)
    sent = sorted(
        (moment + chance.uniform(shortest, longest), person) for person, moment in enumerate(asked)
    )
    in_order = sum(person == place for place, (_, person) in enumerate(sent))
    latest = 0
    free = list(range(people))
    for moment, person in sent:
        guess = max((each for each in free if asked[each] <= moment), default=None)
        if guess is not None:
            free.remove(guess)
            latest += guess == person
    return max(in_order, latest) / people


def print_linked() -> None:
    print(f"| a report is sent | linked by time, of {PEOPLE:,} people a day |")
    print("|---|---|")
    chance = random.Random(5)
    for words, delay in (
        ("at once", 0.0),
        ("within a minute", 60.0),
        ("within ten minutes", 600.0),
        ("within an hour", 3_600.0),
        ("within a day", DAY),
    ):
        share = sum(linked_by_time(delay, chance) for _ in range(5)) / 5
        print(f"| {words} | {share:.1%} |", flush=True)
    print(f"without times: 1/n = {1 / PEOPLE:.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reports", type=int, default=2_000)
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    print_linked()
    costs = edge_costs(options.reports, options.repeats)
    print("| admission | processor time of an edge for a report | of open admission |")
    print("|---|---|---|")
    for admission, cost in costs.items():
        print(f"| {admission} | {cost * 1e6:.0f} us | {cost / costs['open']:.2f} |")
    ratio = costs["tokens"] / costs["open"]
    print(f"tokens against open admission: {ratio:.2f}, at most {LIMIT}: {ratio <= LIMIT}")


if __name__ == "__main__":
    main()
