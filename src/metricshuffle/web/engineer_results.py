"""Results of the cards for engineers: `amplify`, and `solve` for a local metric."""

from __future__ import annotations

from collections.abc import Mapping

from metricshuffle.errors import MetricShuffleError
from metricshuffle.numerics.rounding import format_delta, format_epsilon, format_number
from metricshuffle.report.components import BigNumber, TextTable
from metricshuffle.report.template_engine import render_template
from metricshuffle.web.engineer_cards import ENGINEER_CARDS, RANDOMIZER_FIELDS
from metricshuffle.web.form_fields import FieldErrors, FormReader
from metricshuffle.web.forms import field_errors_of


def engineer_html(card_name: str, typed: Mapping[str, str]) -> str:
    """Render the answer of one of the two cards."""
    card = ENGINEER_CARDS[card_name]
    words = FormReader(card.fields, card.filled(typed))
    try:
        return amplify_html(words) if card_name == "amplify" else solve_html(words)
    except FieldErrors:
        raise
    except MetricShuffleError as error:
        raise field_errors_of(card, error) from None


def _read_common(words: FormReader) -> tuple[int, str, float]:
    users = words.whole("users")
    honest = words.number("honest")
    delta = words.number("delta")
    if honest is not None and not 0.0 < honest <= 100.0:
        words.refuse("honest", f"is a share between 0 and 100 %, got {words.text('honest')}.")
    if delta is not None and not 0.0 < delta < 1.0:
        words.refuse("delta", f"must lie between 0 and 1, got {words.text('delta')}.")
    if users is not None and users < 1:
        words.refuse("users", f"must be a whole number of at least 1, got {words.text('users')}.")
    return users or 0, f"{words.text('honest')}%", delta or 0.0


def _read_positive(words: FormReader, *names: str) -> list[float]:
    values = []
    for name in names:
        value = words.number(name)
        if value is not None and not value > 0.0:
            words.refuse(name, f"must be greater than 0, got {words.text(name)}.")
        values.append(value or 0.0)
    return values


def _read_options(words: FormReader, name: str) -> dict[str, float]:
    """Read the fields of a randomizer as values of the command's options."""
    values: dict[str, float] = {}
    for field in RANDOMIZER_FIELDS[name]:
        if field in ("low", "high"):
            value: float | None = words.number(field)
        elif words.fields[field].kind == "whole":
            value = words.whole(field)
        else:
            (value,) = _read_positive(words, field)
        values[field.replace("_", "-")] = value or 0
    if "low" in values:
        words.ordered("low", "high", values["low"], values["high"])
    return values


def amplify_html(words: FormReader) -> str:
    """Render the result of `metricshuffle amplify --json`, and its explanation."""
    from metricshuffle.amplification.amplify import amplify, amplify_generic, amplify_metric
    from metricshuffle.amplification.named_randomizers import build_randomizer, option_names

    users, honest, delta = _read_common(words)
    name = words.choice("randomizer")
    rounds = words.whole("rounds") or 0
    values = _read_options(words, name)
    words.checked()
    options = [("--randomizer", name)]
    options += [
        (f"--{field.replace('_', '-')}", words.text(field)) for field in RANDOMIZER_FIELDS[name]
    ]
    if name == "generic":
        answer = amplify_generic(values["local-epsilon"], users, honest, rounds=rounds, delta=0.0)
    elif name == "metric":
        answer = amplify_metric(
            values["rate"],
            values["distance"],
            values["reach"],
            None,
            users=users,
            honest=honest,
            rounds=rounds,
        )
    else:
        with option_names(name):
            answer = amplify(build_randomizer(name, values), users, honest, rounds=rounds)
    farthest = values["distance"] if name == "metric" else answer.distance
    options += [
        ("--users", words.text("users")),
        ("--honest", honest),
        ("--rounds", str(rounds)),
        ("--delta", words.text("delta")),
    ]
    band = answer.epsilon(delta, None)
    numbers = [
        BigNumber(
            "epsilon after shuffling, at most (certified)",
            format_epsilon(band.upper),
            f"delta {format_delta(delta)}; bound: {band.bound}",
        ),
        BigNumber(
            "at least (a data set shows it)",
            format_number(band.lower),
            "no proof can promise less than this",
        ),
        BigNumber(
            "one report alone",
            format_epsilon(answer.local.pure(farthest)),
            "if the shuffler colludes",
            broken=True,
        ),
    ]
    exact_numbers = {"upper": repr(band.upper), "lower": repr(band.lower)}
    return render_template(
        "web/engineered.html.jinja",
        numbers=numbers,
        sentences=[answer.explain(delta, None)],
        table=None,
        shown=exact_numbers,
        command=_command("amplify", options),
    )


def solve_html(words: FormReader) -> str:
    """Render the result of `metricshuffle solve --json`, and its explanation."""
    from metricshuffle.privacy.target import Target
    from metricshuffle.solving.solution import allowed_text, solve
    from metricshuffle.spaces import Circle, Grid, Integers, Interval, Space

    users, honest, delta = _read_common(words)
    kind, (epsilon, distance) = words.choice("space"), _read_positive(words, "epsilon", "distance")
    step: float | None = None
    if kind == "grid":
        width = words.whole("width") or 0
        height = words.whole("height") or 0
        words.checked()
        space = Space(Grid(width, height, 1.0))
        options = [("--width", str(width)), ("--height", str(height))]
    else:
        ends = words.number("low"), words.number("high")
        words.ordered("low", "high", *ends)
        words.checked()
        low, high = (end or 0.0 for end in ends)
        whole = low == int(low) and high == int(high)
        if not whole:
            words.refuse(
                "low",
                "and the largest must be whole numbers here; the command line has --step "
                "for others.",
            )
        words.checked()
        numbers = Integers(int(low), int(high)) if whole else Interval(low, high)
        space = Space(numbers, Circle(high - low + 1.0) if kind == "circle" else None)
        options = [
            ("--low", words.text("low")),
            ("--high", words.text("high")),
            *([("--around", "")] if kind == "circle" else []),
        ]
    answer = solve(
        space,
        Target(epsilon, delta, distance),
        users,
        honest,
        step=step,
        algorithm="all",
        least="shares",
        grid=16,
    )
    rows = []
    for row in answer.certified:
        own = (
            ()
            if answer.randomizer is None
            else (
                format_epsilon(row.randomizer_local or 0.0),
                format_epsilon(row.randomizer_certified or 0.0),
            )
        )
        rows.append(
            (
                format_number(row.distance),
                format_epsilon(row.promised),
                allowed_text(row.local),
                format_epsilon(row.certified),
                *own,
            )
        )
    head = (
        "distance",
        "promised",
        "any randomizer: alone",
        "any randomizer: shuffled",
        "this one: alone",
        "this one: shuffled",
    )
    table = TextTable(
        head[: 6 if answer.randomizer is not None else 4],
        rows,
        numeric=range(6),
        caption="Epsilons by distance",
    )
    options += [
        ("--epsilon", words.text("epsilon")),
        ("--distance", words.text("distance")),
        ("--delta", words.text("delta")),
        ("--users", words.text("users")),
        ("--honest", honest),
    ]
    sentences = [
        *answer.why().splitlines(),
        *filter(None, (answer.error_sentence(), *answer.summaries(), answer.trade_off)),
    ]
    exact_numbers = {
        "rows": ";".join(
            f"{row.distance!r} {row.local!r} {row.certified!r}" for row in answer.certified
        )
    }
    return render_template(
        "web/engineered.html.jinja",
        numbers=[],
        sentences=sentences,
        table=table,
        shown=exact_numbers,
        command=_command("solve", options),
    )


def _command(name: str, options: list[tuple[str, str]]) -> str:
    return " ".join(
        ["metricshuffle", name, *(f"{option} {value}".rstrip() for option, value in options)]
    )
