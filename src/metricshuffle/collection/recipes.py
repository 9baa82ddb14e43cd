"""Recipes of reports, for clients that do not read tasks: whole numbers and exact tables.

A recipe has the content of the task in a form that a few hundred lines in a browser can follow: the
same law, drawn from the same random words in the same order as here, so that equal words give
reports that are equal bit for bit. Real numbers are decimal text that reads back as the same
double; 64-bit numbers are decimal text. Real numbers that are compared with random words have
hexadecimal digits.

    input       what a person is asked, and how that becomes whole numbers (codes)
    payload     how a message is laid out in bytes (see tasks.message_format)
    sums            spans, granularity, noise, modulus and shares
    frequencies     the randomizer of one report, and how many a person sends
    noisy-vectors   the features of each point, the noise of each coordinate, and their packing
    shuffler-noise  how the part of each pile follows from a code (see pile_recipes)

The noise of sums and vectors is the exact Polya law that is accounted for, not an approximating
table. Its digits are given to 256 bits: a client stops if they do not suffice to compare a random
number with a given one, which has a probability below 2^-240.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from metricshuffle.collection.pile_recipes import family_recipe
from metricshuffle.encodings.modular_shares import LARGEST_MODULUS
from metricshuffle.noise import samplers
from metricshuffle.noise.compound_poisson import jump_tables
from metricshuffle.numerics.types import Floats, Words
from metricshuffle.protocols.features import (
    Features,
    FlowCells,
    FlowHats,
    GroupFeatures,
    RowColumns,
    SetMembers,
    space_of,
)
from metricshuffle.protocols.features.feature_set import feature_table
from metricshuffle.protocols.frequencies import Frequencies
from metricshuffle.protocols.noisy_vectors import NoisyVectors
from metricshuffle.protocols.protocol import Layout, Protocol
from metricshuffle.protocols.shuffler_noise import ShufflerNoise
from metricshuffle.protocols.sums import Sums
from metricshuffle.queries import (
    ByGroup,
    Centroid,
    Flows,
    Histogram,
    KeyValues,
    Mean,
    Means,
    Quantiles,
    Sets,
    ShareAbove,
    Spread,
    Sum,
    UserHistogram,
    UserLinearQuery,
)
from metricshuffle.queries.cell_query import CellQuery
from metricshuffle.queries.query import Query
from metricshuffle.queries.user_queries import UserQuery
from metricshuffle.randomizers.additive_randomizer import AdditiveRandomizer
from metricshuffle.randomizers.bounded_geometric import BoundedGeometric
from metricshuffle.randomizers.channel import Channel
from metricshuffle.randomizers.planar_geometric import PlanarGeometric
from metricshuffle.randomizers.randomized_response import (
    BinaryRandomizedResponse,
    KaryRandomizedResponse,
)
from metricshuffle.randomizers.randomizer import Randomizer
from metricshuffle.randomizers.table_randomizer import TableRandomizer
from metricshuffle.spaces import (
    Categories,
    Domain,
    Grid,
    Integers,
    Interval,
    Places,
    Space,
    ZonePairs,
    Zones,
)
from metricshuffle.spaces.places import POINTS_PER_DEGREE
from metricshuffle.tasks.task import Task

if TYPE_CHECKING:
    from scipy.sparse import csr_array

JsonObject = dict[str, Any]
"""A JSON object; its readers validate the values."""
Recipe = JsonObject

MAX_ROWS = 64
"""Limit for inputs of a randomizer written as a table."""
MAX_WEIGHTS = 2**14
MAX_FEATURES = 2**17
"""Limit for non-zero entries of a table of features: about a megabyte of text."""
MAX_LAWS = 256
"""Limit for different rates of noise in one vector; each takes some kilobytes."""
DIGIT_WORDS = 4
"""Number of 64-bit words of a real number that is compared with random words."""


class _UnsupportedByBrowser(Exception):
    """A client that follows recipes cannot make reports of a task; the message says why."""


def recipe_of(task: Task) -> Recipe:
    """Return the recipe of a task; if a browser cannot follow it, the recipe says why."""
    protocol = task.protocol
    try:
        if protocol.trusted not in ("nobody", "shuffler") or not protocol.layout.apart:
            raise _UnsupportedByBrowser(
                "Its messages are not mixed one by one, so that they cannot be sealed one by one."
            )
        build_steps = _STEPS.get(type(protocol), _unknown)
        steps = build_steps(protocol, task.query)
        return {
            "protocol": protocol.kind,
            "browser": True,
            "input": _input_recipe(task.query, protocol),
            "payload": _payload(protocol.layout, apart=protocol.adds_noise),
            **steps,
        }
    except _UnsupportedByBrowser as why:
        return {"protocol": protocol.kind, "browser": False, "why": str(why)}


# Input


def _input_recipe(query: Query, protocol: Protocol) -> Recipe:
    """Recipe of the input.

    Codes are whole numbers from 0: steps of a number, labels in their order, row * width + column
    of a cell, start * labels + end of a trip. Places in degrees have two codes, the nearest points
    north and east of the corner, with `points` to a degree. A record has a code for each of its
    parts: column * width + steps of the number, and 2 * place + 1 of a label in a set.
    """
    if type(query) in (UserHistogram, UserLinearQuery) and isinstance(query, UserQuery):
        domain = query.people.items_in.domain
        max_items = getattr(protocol, "most_items", None)
        return {
            "kind": "items",
            "of": _value(domain, 1.0, "down"),
            "count": query.people.items,
            "most": max_items,
        }
    if type(query) in (Histogram, Flows, Quantiles, Spread, ShareAbove):
        assert isinstance(query, CellQuery)  # noqa: S101 - for the type checker
        return _value(query.domain, query.step, "down")
    if type(query) in (Sum, Mean, Centroid):
        return _value(query.values_in, protocol.step, "nearest")
    if type(query) is ByGroup:
        return {
            "kind": "group",
            "by": query.by,
            "label": _value(query.groups, 1.0, "down"),
            "number": _value(query.numbers, query.step, "nearest"),
            "width": query.top + 1,
        }
    if type(query) is Means:
        number = _value(query.domain, query.step, "nearest")
        columns = list(query.columns)
        return {"kind": "row", "columns": columns, "number": number, "width": query.top + 1}
    if type(query) is Sets:
        return {"kind": "set", "label": _value(query.labels, 1.0, "down"), "most": query.size}
    if type(query) is KeyValues:
        return {
            "kind": "keys",
            "label": _value(query.keys, 1.0, "down"),
            "number": _value(query.numbers, query.step, "nearest"),
            "width": query.top + 1,
            "most": query.size,
        }
    raise _UnsupportedByBrowser(
        f"A browser does not know how to turn answers to the query {query.kind!r} into numbers."
    )


def _value(domain: Domain, step: float, rounding: str) -> Recipe:
    """Recipe of one value.

    `rounding` says how a number becomes a step: "nearest" (halves to even), or "down".
    """
    if isinstance(domain, Categories):
        return {"kind": "label", "labels": list(domain.labels)}
    if isinstance(domain, Zones):
        return {"kind": "label", "labels": list(domain.ids)}
    if isinstance(domain, ZonePairs):
        return {"kind": "trip", "labels": list(domain.zones.ids)}
    if isinstance(domain, Grid):
        box = domain.box
        sides = (
            None
            if box is None
            else [repr(float(side)) for side in (box.south, box.west, box.north, box.east)]
        )
        return {
            "kind": "place",
            "width": domain.width,
            "height": domain.height,
            "cell": repr(domain.cell),
            "unit": domain.unit,
            "box": sides,
        }
    if isinstance(domain, Places):
        sides = [
            repr(float(side)) for side in (domain.south, domain.west, domain.north, domain.east)
        ]
        corner = [str(point) for point in domain.corner]
        return {
            "kind": "degrees",
            "box": sides,
            "points": str(POINTS_PER_DEGREE),
            "corner": corner,
            "unit": domain.unit,
        }
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


def _payload(layout: Layout, *, apart: bool) -> Recipe:
    """Recipe of the byte layout: sizes of a group's index and of a number.

    A message is `width` numbers; each person sends `each` messages to each group (`piles`). Groups
    that are mixed `apart` are not named in their messages.
    """
    pile = 1 if layout.piles <= 2**8 else 2 if layout.piles <= 2**16 else 4
    return {
        "piles": layout.piles,
        "each": layout.each,
        "pile": 0 if apart else pile,
        "number": layout.type.itemsize,
        "width": layout.width,
    }


# Randomization


def _sums(protocol: Sums, query: Query) -> Recipe:
    """Recipe of sums: each axis is rounded at random to cells, gets noise, and is sent in shares.

    Each axis of places in degrees has its own granularity; spans and granularities are text then,
    because they may exceed 2^53.
    """
    first = protocol.randomizers[0]
    rounds = protocol.rounding is not None
    noises = {
        (item.shape, item.rate, None if rounds else item.granularity)
        for item in protocol.randomizers
        if type(item) is AdditiveRandomizer and item.padding == "none"
    }
    if (
        len(noises) != 1
        or not isinstance(first, AdditiveRandomizer)
        or not 2 <= (protocol.modulus or 0) <= LARGEST_MODULUS
    ):
        raise _UnsupportedByBrowser("Its noise is none that a browser draws.")
    spans: list[Any] = [randomizer.span for randomizer in protocol.randomizers]
    return {
        "spans": [str(span) for span in spans] if rounds else spans,
        "granularity": [str(randomizer.granularity) for randomizer in protocol.randomizers]
        if rounds
        else first.granularity,
        "noise": _noise(first.shape, first.exact_rate, 1),
        "modulus": str(protocol.modulus),
        "shares": protocol.shares,
    }


def _frequencies(protocol: Frequencies, query: Query) -> Recipe:
    """All items, or a sample with replacement, are randomized; a person's reports are sorted."""
    if protocol.drawn == "without replacement":
        raise _UnsupportedByBrowser("A browser draws items with replacement only.")
    return {
        "items": protocol.items,
        "drawn": protocol.drawn,
        "randomizer": _randomizer(protocol.randomizer),
    }


def _vectors(protocol: NoisyVectors, query: Query) -> Recipe:
    """Items are randomized (with a floor), their features summed or averaged, noised and packed."""
    space = space_of(query)
    groups = _columns_by_rate(protocol.features.weights(space), protocol.rates(space))
    if len(groups) > MAX_LAWS:
        raise _UnsupportedByBrowser(
            f"It has {len(groups):,} kinds of noise, more than a page should load."
        )
    if protocol.rounding is not None and protocol.features.ranges(space)[0].min() < 0:
        raise _UnsupportedByBrowser("A browser rounds only features that are never negative.")
    packed = protocol.packed
    share = Fraction(1, protocol.sharers)
    return {
        "floor": None if protocol.floor is None else _randomizer(protocol.floor),
        "features": _features(protocol.features, space),
        "units": protocol.units,
        "most_items": protocol.most_items,
        **({} if protocol.rounding is None else {"divisor": protocol.divisor}),
        "noise": [
            {"columns": columns, **_noise(share, rate, len(columns))}
            for rate, columns in groups.items()
        ],
        "coordinates": protocol.coordinates,
        "bits": packed.bits,
        "together": packed.together,
        "shares": packed.shares,
    }


def _features(features: Features, space: Space) -> Recipe | list[list[int]]:
    """Coordinates and values of every point, or the formula that gives them.

    A trip has all products of the features of its two ends.
    """
    if type(features) is GroupFeatures:
        return {"form": features.form, "top": features.top}
    if type(features) is RowColumns or type(features) is SetMembers:
        return {"form": "columns", "top": int(features.ranges(space)[1][0])}
    if type(features) is FlowCells or type(features) is FlowHats:
        ends = features.end_table(space)
        return {"form": "products", "width": ends.shape[1], "ends": _table_rows(ends)}
    return _table_rows(feature_table(features, space))


def _table_rows(entries: csr_array) -> list[list[int]]:
    """Coordinates and values of every row of a table."""
    table = entries.copy()
    table.sum_duplicates()
    if table.nnz > MAX_FEATURES:
        raise _UnsupportedByBrowser(
            f"Its table of features has {table.nnz:,} entries, more than a page should load."
        )
    ends = table.indptr.tolist()
    pairs = np.column_stack([table.indices, table.data]).ravel().tolist()
    return [pairs[2 * start : 2 * end] for start, end in pairwise(ends)]


def _parts(protocol: ShufflerNoise, query: Query) -> Recipe:
    """Items are drawn or randomized if the protocol says so; a message is a part of a pile."""
    family = family_recipe(protocol.family(space_of(query)), MAX_FEATURES)
    if family is None:
        raise _UnsupportedByBrowser("Its table of parts is larger than a page should load.")
    return {
        "floor": None if protocol.floor is None else _randomizer(protocol.floor),
        "items": protocol.items,
        "drawn": protocol.drawn,
        "family": family,
    }


def _unknown(protocol: Any, query: Query) -> Recipe:
    raise _UnsupportedByBrowser(f"A browser does not know how reports of {protocol.kind} are made.")


_STEPS: dict[type[Protocol], Callable[[Any, Query], Recipe]] = {
    Sums: _sums,
    Frequencies: _frequencies,
    NoisyVectors: _vectors,
    ShufflerNoise: _parts,
}


def _columns_by_rate(weights: Floats, rates: Floats) -> dict[Fraction, list[int]]:
    """Coordinates by rate of noise, in the order in which `sample_polya_rows` draws them."""
    by_weight: dict[float, list[int]] = {}
    for column, weight in enumerate(weights):
        by_weight.setdefault(float(weight), []).append(column)
    by_rate: dict[Fraction, list[int]] = {}
    for columns in by_weight.values():
        by_rate.setdefault(Fraction(float(rates[columns[0]])), []).extend(columns)
    return by_rate


def _noise(shape: Fraction, rate: Fraction, columns: int) -> Recipe:
    """Polya law of `columns` draws, as `noise.samplers` draws them.

    It consists of `whole` discrete Laplace draws and of jumps for the fractional part of the shape.
    `run` is the probability of no jump in the longest stretch that a client skips at once; for the
    other tables see noise.compound_poisson.
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
    return {
        "whole": int(whole),
        "rate": [str(rate.numerator), str(rate.denominator)],
        "jumps": jumps,
    }


def _digits(rows: Words) -> list[str]:
    """Real numbers in 0..1 as the hexadecimal digits after the point."""
    return ["".join(f"{int(word):016x}" for word in row) for row in rows]


def _randomizer(randomizer: Randomizer) -> Recipe:
    """Law of one report for one code. Exact types only: subclasses may sample differently."""
    if type(randomizer) in (KaryRandomizedResponse, BinaryRandomizedResponse) and isinstance(
        randomizer, KaryRandomizedResponse
    ):
        return {
            "kind": "k-ary",
            "options": randomizer.options,
            "keep": str(randomizer.keep),
            "other": str(randomizer.other),
        }
    if type(randomizer) is BoundedGeometric:
        return _geometric([randomizer])
    if type(randomizer) is PlanarGeometric:
        return _geometric(randomizer.axes)
    kind = type(randomizer)
    channel = randomizer.channel if isinstance(randomizer, TableRandomizer) else randomizer
    own = (kind.values_of, kind.codes_of) != (Randomizer.values_of, Randomizer.codes_of)
    if (
        type(channel) is not Channel
        or own
        or (isinstance(randomizer, TableRandomizer) and kind.reports is not TableRandomizer.reports)
    ):
        raise _UnsupportedByBrowser(
            f"Reports are drawn by {kind.__name__}, and a browser does not know how."
        )
    if channel.inputs > MAX_ROWS or channel.weights.size > MAX_WEIGHTS:
        raise _UnsupportedByBrowser(
            f"Reports are drawn from a table of {channel.inputs:,} rows and "
            f"{channel.outputs:,} columns; a browser takes up to "
            f"{MAX_ROWS} rows and {MAX_WEIGHTS:,} numbers."
        )
    return {
        "kind": "rows",
        "weights": [[str(weight) for weight in row] for row in channel.weights.tolist()],
    }


def _geometric(axes: Sequence[BoundedGeometric]) -> Recipe:
    """Discrete Laplace noise on a number, or on column and row of a cell, clamped to 0..span."""
    rates = {axis.exact_rate for axis in axes}
    rate = rates.pop()
    return {
        "kind": "geometric",
        "spans": [axis.span for axis in axes],
        "rate": [str(rate.numerator), str(rate.denominator)],
    }
