"""Sentences from below the command line, which name arguments as Python does, with options in their places."""

from __future__ import annotations

import re
from collections.abc import Mapping

# What Python calls an option of another name; used where a command has that option.
ALSO = {"protocols": "--protocol", "floor": "--no-floor"}
# Options of other commands, which a sentence names as what to do next.
ELSEWHERE = {
    name: f"--{name.replace('_', '-')}" for name in ("user_column", "most_items", "rounds", "people", "round", "trusted", "encoding")
}
# The class that a declaration was refused by leads its sentence in Python; whoever types a command never named it.
DECLARED_AS = re.compile(r"^(?:[A-Z][A-Za-z0-9]*: )+(?=[a-z])")
INSIDE = re.compile(r"(?<=: )(?:[A-Z][a-z0-9]+){2,}: (?=[a-z])")
# A name is one if a sentence begins with it and says something about it, ...
SUBJECT = re.compile(r"^([a-z_]+)(?= (?:must|needs|leaves|lies|is|as a fraction|differs?|=|-?\d))")
# ... if it has a value (after a space or a bracket: what was typed is quoted as it was), ...
VALUE = re.compile(r"(?<![^\s(])([a-z][a-z_]*)=(?:'([^']*)'|(-?\d[\w.+-]*|None|True|False))")
# ... if it is to be given or changed, ...
TO_CHANGE = re.compile(r"\b(give|raise|lower|must be below) (?:an? )?([a-z_]+)\b")
# ... if it is quoted as code, or has an underscore, which no English word has.
QUOTED = re.compile(r"`([a-z][a-z_]*)`")
JOINED = re.compile(r"(?<![\w-])([a-z]+(?:_[a-z]+)+)\b(?! *\()")
CORNER = re.compile(r"\b(south|west|north|east)\b(=?)")
DIGITS = re.compile(r"\d[\d,]{40,}")


def in_options(message: str, options: Mapping[str, str]) -> str:
    """The message with the options of the command in place of names of Python; other words are left alone."""
    known = {**{name: option for name, option in ALSO.items() if option in options.values()}, **options}

    def option(match: re.Match[str]) -> str:
        return known.get(match[1], match[0])

    def quoted(match: re.Match[str]) -> str:
        return known.get(match[1], ELSEWHERE.get(match[1], match[0]))

    def to_change(match: re.Match[str]) -> str:
        return f"{match[1]} {known[match[2]]}" if match[2] in known else match[0]

    def with_value(match: re.Match[str]) -> str:
        value, name = match[2] or match[3], known.get(match[1], ELSEWHERE.get(match[1]))
        if name is None:
            return match[0]
        return name if value in ("None", "True", "False") else f"{name} {value}"

    told = INSIDE.sub("", DECLARED_AS.sub("", message))
    if "local_epsilon" in known and (told != message or re.match(r"epsilon [\d.]", told)):
        known["epsilon"] = known["local_epsilon"]  # of the randomizer; the command itself looks at the epsilon that is asked for
    if told != message and told.startswith("needs "):
        told = f"this {told}"
    if "box" in known and CORNER.match(told):
        told = f"{known['box']}: " + CORNER.sub(lambda match: match[1].upper() + " " * len(match[2]), told)
    told = VALUE.sub(with_value, told)
    told = QUOTED.sub(quoted, told)
    for pattern in (JOINED, SUBJECT):
        told = pattern.sub(option, told)
    told = TO_CHANGE.sub(to_change, told)
    told = DIGITS.sub(lambda match: f"a number of {len(match[0].replace(',', ''))} digits", told)
    return re.sub(r"(--[a-z-]+) = ", r"\1 ", told)
