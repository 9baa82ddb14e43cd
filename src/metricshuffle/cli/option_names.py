"""Sentences from below the command line, which name arguments as Python does, with options in their places."""

from __future__ import annotations

import re
from collections.abc import Mapping

# What Python calls an option of another name; used where a command has that option.
OTHER_OPTIONS = {"protocols": "--protocol", "floor": "--no-floor"}
# Options of other commands, which a sentence names as what to do next.
ELSEWHERE = {
    name: f"--{name.replace('_', '-')}" for name in ("user_column", "most_items", "rounds", "people", "round", "trusted", "encoding")
}
# The class that a declaration was refused by leads its sentence in Python; whoever types a command never named it.
CLASS_PREFIX = re.compile(r"^(?:[A-Z][A-Za-z0-9]*: )+(?=[a-z])")
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


def with_option_names(message: str, options: Mapping[str, str]) -> str:
    """The message with the options of the command in place of names of Python; other words are left alone."""
    option_of = {**{name: option for name, option in OTHER_OPTIONS.items() if option in options.values()}, **options}

    def option(match: re.Match[str]) -> str:
        return option_of.get(match[1], match[0])

    def quoted(match: re.Match[str]) -> str:
        return option_of.get(match[1], ELSEWHERE.get(match[1], match[0]))

    def to_change(match: re.Match[str]) -> str:
        return f"{match[1]} {option_of[match[2]]}" if match[2] in option_of else match[0]

    def with_value(match: re.Match[str]) -> str:
        value, name = match[2] or match[3], option_of.get(match[1], ELSEWHERE.get(match[1]))
        if name is None:
            return match[0]
        return name if value in ("None", "True", "False") else f"{name} {value}"

    text = INSIDE.sub("", CLASS_PREFIX.sub("", message))
    if "local_epsilon" in option_of and (text != message or re.match(r"epsilon [\d.]", text)):
        option_of["epsilon"] = option_of["local_epsilon"]  # of the randomizer; the command itself looks at the epsilon that is asked for
    if text != message and text.startswith("needs "):
        text = f"this {text}"
    if "box" in option_of and CORNER.match(text):
        text = f"{option_of['box']}: " + CORNER.sub(lambda match: match[1].upper() + " " * len(match[2]), text)
    text = VALUE.sub(with_value, text)
    text = QUOTED.sub(quoted, text)
    for pattern in (JOINED, SUBJECT):
        text = pattern.sub(option, text)
    text = TO_CHANGE.sub(to_change, text)
    text = DIGITS.sub(lambda match: f"a number of {len(match[0].replace(',', ''))} digits", text)
    return re.sub(r"(--[a-z-]+) = ", r"\1 ", text)
