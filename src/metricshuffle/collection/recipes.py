"""How a report is made, for clients that do not read tasks: whole numbers and tables, every one of them exact.

A recipe is what the task says, in a form that a few hundred lines in a browser can follow: the same law, drawn from the same random words
in the same order as here, so that reports are equal bit for bit where the words are. Real numbers are decimal text that reads back as the
same double, 64-bit numbers are decimal text, and the digits of real numbers that random words are compared with are hexadecimal.

    input       what a person is asked, and how that becomes whole numbers (codes)
    payload     how a message is laid out in bytes (see tasks.message_format)
    sums            spans, granularity, noise, modulus and shares
    frequencies     the randomizer of one report, and how many a person sends
    noisy-vectors   the features of each point, the noise of each coordinate, and how coordinates are packed

The noise of sums and vectors is the exact Polya law that is accounted for, and no table that comes near it. Its digits are carried to 256
bits, not to as many as it takes: a client that cannot tell a random number from one of them by then stops, which has a probability below
2^-240 and is never seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from metricshuffle.encodings.modular_shares import LARGEST_MODULUS
from metricshuffle.noise import samplers
from metricshuffle.noise.compound_poisson import jump_tables
from metricshuffle.numerics.types import Floats, Words
from metricshuffle.protocols.features import space_of
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.protocols.noisy_vectors import NoisyVectors, feature_table
from metricshuffle.protocols.protocol import Layout, Protocol
from metricshuffle.protocols.sums import Sums
from metricshuffle.queries import Centroid, Histogram, Mean, Sum, UserHistogram
from metricshuffle.queries.query import Query
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer
from metricshuffle.randomizers.bounded_geometric import BoundedGeometric
from metricshuffle.randomizers.channel import Channel
from metricshuffle.randomizers.planar_geometric import PlanarGeometric
from metricshuffle.randomizers.randomized_response import BinaryRandomizedResponse, KaryRandomizedResponse
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.randomizers.table_randomizer import TableRandomizer
from metricshuffle.spaces import Categories, Domain, Grid, Integers, Interval, Places
from metricshuffle.spaces.places import POINTS_PER_DEGREE
from metricshuffle.tasks.task import Task

Recipe = dict[str, Any]

MAX_ROWS = 64
"""Inputs of a randomizer that is given by its table."""
MAX_WEIGHTS = 2**14
MAX_FEATURES = 2**17
"""Entries of a table of features that are not 0: about a megabyte of text."""
MAX_LAWS = 256
"""Different rates of noise in one vector; each takes some kilobytes."""
DIGIT_WORDS = 4
"""Words of 64 bits of a real number that random words are compared with."""


class _UnsupportedByBrowser(Exception):
    """Why a client that follows recipes cannot make reports of a task, in a sentence."""


def recipe_of(task: Task) -> Recipe:
    """The recipe of a task; where a browser cannot follow it, one that says so and why: clients that read tasks take part all the same."""
    protocol = task.protocol
    try:
        if protocol.trusted not in ("nobody", "shuffler") or not protocol.layout.apart:
            raise _UnsupportedByBrowser("Its messages are not mixed one by one, so that they cannot be sealed one by one.")
        build_steps = _STEPS.get(type(protocol), _unknown)
        steps = build_steps(protocol, task.query)
        return {
            "protocol": protocol.kind,
            "browser": True,
            "input": _input_recipe(task.query, protocol),
            "payload": _payload(protocol.layout),
            **steps,
        }
    except _UnsupportedByBrowser as why:
        return {"protocol": protocol.kind, "browser": False, "why": str(why)}


# What is asked


def _input_recipe(query: Query, protocol: Protocol) -> Recipe:
    """What a person enters. Codes are whole numbers from 0: steps of a number, labels in their order, row * width + column of a cell.

    Of places in degrees they are two: the nearest points north and east of the corner, `points` a degree.
    """
    if type(query) is UserHistogram:
        domain, max_items = query.people.items_in.domain, getattr(protocol, "most_items", None)
        return {"kind": "items", "of": _value(domain, 1.0, "down"), "count": query.people.items, "most": max_items}
    if type(query) is Histogram:
        return _value(query.domain, query.step, "down")
    if type(query) in (Sum, Mean, Centroid):
        return _value(query.values_in, protocol.step, "nearest")
    raise _UnsupportedByBrowser(f"A browser does not know how answers to a {query.kind} become numbers.")


def _value(domain: Domain, step: float, rounding: str) -> Recipe:
    """One value: `rounding` says how a number becomes a step, the nearest one (of halves the even one) or the one at or below it."""
    if isinstance(domain, Categories):
        return {"kind": "label", "labels": list(domain.labels)}
    if isinstance(domain, Grid):
        box = domain.box
        sides = None if box is None else [repr(float(side)) for side in (box.south, box.west, box.north, box.east)]
        return {
            "kind": "place",
            "width": domain.width,
            "height": domain.height,
            "cell": repr(domain.cell),
            "unit": domain.unit,
            "box": sides,
        }
    if isinstance(domain, Places):
        sides = [repr(float(side)) for side in (domain.south, domain.west, domain.north, domain.east)]
        corner = [str(point) for point in domain.corner]
        return {"kind": "degrees", "box": sides, "points": str(POINTS_PER_DEGREE), "corner": corner, "unit": domain.unit}
    if isinstance(domain, Integers | Interval):
        return {
            "kind": "number",
            "whole": isinstance(domain, Integers),
            "low": repr(domain.low),
            "high": repr(domain.high),
            "step": repr(float(step)),
            "rounding": rounding,
            "unit": domain.unit,
        }
    raise _UnsupportedByBrowser(f"A browser does not know values in {domain}.")


def _payload(layout: Layout) -> Recipe:
    """Bytes of the number of a pile and of a number; a message is `width` numbers, and everybody sends `each` to each of the piles."""
    pile = 1 if layout.piles <= 2**8 else 2 if layout.piles <= 2**16 else 4
    return {"piles": layout.piles, "each": layout.each, "pile": pile, "number": layout.type.itemsize, "width": layout.width}


# What is done with it


def _sums(protocol: Sums, query: Query) -> Recipe:
    """Each axis is rounded at random to cells, gets noise, and is sent in shares.

    Of places in degrees each axis has a granularity of its own, and spans and granularities are text: they may be above 2^53.
    """
    first, rounds = protocol.randomizers[0], protocol.rounding is not None
    noises = {
        (item.shape, item.rate, None if rounds else item.granularity)
        for item in protocol.randomizers
        if type(item) is AdditiveRandomizer and item.padding == "none"
    }
    if len(noises) != 1 or not isinstance(first, AdditiveRandomizer) or not 2 <= (protocol.modulus or 0) <= LARGEST_MODULUS:
        raise _UnsupportedByBrowser("Its noise is none that a browser draws.")
    spans: list[Any] = [randomizer.span for randomizer in protocol.randomizers]
    return {
        "spans": [str(span) for span in spans] if rounds else spans,
        "granularity": [str(randomizer.granularity) for randomizer in protocol.randomizers] if rounds else first.granularity,
        "noise": _noise(first.shape, first.exact_rate, 1),
        "modulus": str(protocol.modulus),
        "shares": protocol.shares,
    }


def _frequencies(protocol: Frequencies, query: Query) -> Recipe:
    """Every item, or some that are drawn from them with replacement, goes through the randomizer; a person's reports are sorted."""
    return {"items": protocol.items, "drawn": protocol.drawn, "randomizer": _randomizer(protocol.randomizer)}


def _vectors(protocol: NoisyVectors, query: Query) -> Recipe:
    """Items are randomized (if there is a floor), their features added up or averaged, noise is added, and all is packed in shares."""
    space = space_of(query)
    table = feature_table(protocol.features, space).copy()
    table.sum_duplicates()
    if table.nnz > MAX_FEATURES:
        raise _UnsupportedByBrowser(f"Its table of features has {table.nnz:,} entries, more than a page should load.")
    ends = table.indptr.tolist()
    pairs = np.column_stack([table.indices, table.data]).ravel().tolist()
    groups = _columns_by_rate(protocol.features.weights(space), protocol.rates(space))
    if len(groups) > MAX_LAWS:
        raise _UnsupportedByBrowser(f"It has {len(groups):,} kinds of noise, more than a page should load.")
    packed, share = protocol.packed, Fraction(1, protocol.sharers)
    return {
        "floor": None if protocol.floor is None else _randomizer(protocol.floor),
        "features": [pairs[2 * start : 2 * end] for start, end in pairwise(ends)],
        "units": protocol.units,
        "most_items": protocol.most_items,
        "noise": [{"columns": columns, **_noise(share, rate, len(columns))} for rate, columns in groups.items()],
        "coordinates": protocol.coordinates,
        "bits": packed.bits,
        "together": packed.together,
        "shares": packed.shares,
    }


def _unknown(protocol: Any, query: Query) -> Recipe:
    raise _UnsupportedByBrowser(f"A browser does not know how reports of {protocol.kind} are made.")


_STEPS: dict[type[Protocol], Callable[[Any, Query], Recipe]] = {Sums: _sums, Frequencies: _frequencies, NoisyVectors: _vectors}


def _columns_by_rate(weights: Floats, rates: Floats) -> dict[Fraction, list[int]]:
    """Which coordinates have which noise, in the order in which `sample_polya_rows` draws them."""
    by_weight: dict[float, list[int]] = {}
    for column, weight in enumerate(weights):
        by_weight.setdefault(float(weight), []).append(column)
    by_rate: dict[Fraction, list[int]] = {}
    for columns in by_weight.values():
        by_rate.setdefault(Fraction(float(rates[columns[0]])), []).extend(columns)
    return by_rate


def _noise(shape: Fraction, rate: Fraction, columns: int) -> Recipe:
    """The Polya law of so many draws at once, as `noise.samplers` draws them: `whole` discrete Laplace draws and the jumps of what is left.

    `run` is the probability that no draw of the longest stretch that is skipped at once has a jump; see noise.compound_poisson for the
    others.
    """
    is_supported = samplers.SMALLEST_RATE <= rate <= samplers.LARGEST_RATE and 0 < shape <= MAX_ROWS
    if (
        not is_supported
        or rate.numerator > samplers.LARGEST_NUMERATOR
        or max(rate.denominator, shape.denominator) > samplers.LARGEST_DENOMINATOR
    ):
        raise _UnsupportedByBrowser("Its noise is none that a browser draws.")
    whole, left = divmod(shape, 1)
    jumps = None
    if left:
        tables = jump_tables(left, rate, DIGIT_WORDS)
        levels = min(len(tables.bits), (2 * columns - 1).bit_length())
        jumps = {
            "run": _digits(tables.runs[levels : levels + 1])[0],
            "bits": _digits(tables.bits[:levels]),
            "numbers": _digits(tables.numbers),
            "blocks": _digits(tables.blocks),
        }
    return {"whole": int(whole), "rate": [str(rate.numerator), str(rate.denominator)], "jumps": jumps}


def _digits(rows: Words) -> list[str]:
    """Real numbers in 0..1 as the hexadecimal digits behind the point."""
    return ["".join(f"{int(word):016x}" for word in row) for row in rows]


def _randomizer(randomizer: Randomizer) -> Recipe:
    """The law of one report on one code. Only what is known to draw by exactly this law is told: no class derived from it."""
    if type(randomizer) in (KaryRandomizedResponse, BinaryRandomizedResponse) and isinstance(randomizer, KaryRandomizedResponse):
        return {"kind": "k-ary", "options": randomizer.options, "keep": str(randomizer.keep), "other": str(randomizer.other)}
    if type(randomizer) is BoundedGeometric:
        return _geometric([randomizer])
    if type(randomizer) is PlanarGeometric:
        return _geometric(randomizer.axes)
    kind, channel = type(randomizer), randomizer.channel if isinstance(randomizer, TableRandomizer) else randomizer
    own = (kind.values_of, kind.codes_of) != (Randomizer.values_of, Randomizer.codes_of)
    if type(channel) is not Channel or own or (isinstance(randomizer, TableRandomizer) and kind.reports is not TableRandomizer.reports):
        raise _UnsupportedByBrowser(f"Reports are drawn by {kind.__name__}, and a browser does not know how.")
    if channel.inputs > MAX_ROWS or channel.weights.size > MAX_WEIGHTS:
        raise _UnsupportedByBrowser(
            f"Reports are drawn from a table of {channel.inputs:,} rows and {channel.outputs:,} columns; a browser takes up to "
            f"{MAX_ROWS} rows and {MAX_WEIGHTS:,} numbers."
        )
    return {"kind": "rows", "weights": [[str(weight) for weight in row] for row in channel.weights.tolist()]}


def _geometric(axes: Sequence[BoundedGeometric]) -> Recipe:
    """Discrete Laplace noise on the column and the row of a cell, or on a number, clamped to 0..span."""
    rates = {axis.exact_rate for axis in axes}
    rate = rates.pop()
    return {"kind": "geometric", "spans": [axis.span for axis in axes], "rate": [str(rate.numerator), str(rate.denominator)]}
