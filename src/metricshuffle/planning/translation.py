"""Languages of the text for participants: gettext catalogues, one .po file per language.

The English sentence is the key of its translation. A sentence may contain {names} of values, which
its translation repeats. To add a language, copy `languages/de.po`, translate every `msgstr`, and
give the file as the language.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path

from metricshuffle.errors import InputError, argument

ENGLISH = "en"
SUFFIX = ".po"
MAX_CATALOGUE_BYTES = 1_000_000
_SEPARATOR = re.compile(r"(?<=\d)[.,](?=\d)")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Language:
    """A language: its code, its sentences by the English ones, and its decimal separator."""

    code: str = ENGLISH
    sentences: Mapping[str, str] = field(default_factory=dict, repr=False)
    decimal_comma: bool = False

    def say(self, sentence: str, **values: str) -> str:
        """Translate an English sentence and fill in its values; numbers take this language's form.

        Raises:
            InputError: if the catalogue does not contain the sentence.
        """
        if self.code != ENGLISH:
            if not self.sentences.get(sentence):
                raise InputError(
                    f"the catalogue of the language {self.code!r} has no translation of "
                    f"{sentence!r}; add it to the file."
                )
            sentence = self.sentences[sentence]
        return sentence.format(**values)

    def number(self, text: str) -> str:
        """Return a text whose numbers are written in English with this language's separators."""
        if not self.decimal_comma:
            return text
        return _SEPARATOR.sub(lambda match: "." if match[0] == "," else ",", text)


def language_codes() -> list[str]:
    """Codes of the languages of the package."""
    folder = files("metricshuffle.planning") / "languages"
    names = [item.name for item in folder.iterdir()]
    return sorted([ENGLISH, *(name.removesuffix(SUFFIX) for name in names if SUFFIX in name)])


@cache
def load_language(code: str) -> Language:
    """Load a language of the package by its code, or one from the path of a .po file.

    Raises:
        InputError: if there is no such language, or the file is not a catalogue.
    """
    if code == ENGLISH:
        return Language()
    if code in language_codes():
        catalogue = files("metricshuffle.planning") / "languages" / f"{code}{SUFFIX}"
        return parse_catalogue(catalogue.read_text("utf-8"), code)
    path = Path(code)
    if path.suffix != SUFFIX or not path.is_file():
        raise InputError(
            f"{argument('language', code)} is not known; use one of {', '.join(language_codes())}, "
            f"or the path of a catalogue ({SUFFIX} file)."
        )
    if path.stat().st_size > MAX_CATALOGUE_BYTES:
        raise InputError(f"{code} is larger than a catalogue of {MAX_CATALOGUE_BYTES:,} bytes.")
    try:
        return parse_catalogue(path.read_text("utf-8"), code)
    except UnicodeDecodeError:
        raise InputError(f"{code} is not UTF-8 text; save the catalogue as UTF-8.") from None


def parse_catalogue(text: str, title: str) -> Language:
    """Read a catalogue: pairs of msgid and msgstr, the first of which is the header.

    Args:
        title: Name of the file, for messages.

    Raises:
        InputError: if a line cannot be read, or a translation lacks or adds a value.
    """
    sentences: dict[str, str] = {}
    entry = {"msgid": "", "msgstr": ""}
    target = ""
    for number, line in enumerate([*text.splitlines(), 'msgid ""'], 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        keyword, _, quoted = line.partition(" ") if line[0] != '"' else (target, "", line)
        if keyword not in entry:
            raise InputError(
                f"{title}, line {number}: expected msgid, msgstr or a quoted text, got {line!r}."
            )
        if keyword == "msgid" and line[0] != '"':
            sentences[entry["msgid"]] = entry["msgstr"]
            entry = {"msgid": "", "msgstr": ""}
        target = keyword
        entry[target] += _unquote(quoted, f"{title}, line {number}")
    header = sentences.pop("", "")
    for sentence, translation in sentences.items():
        if translation and _values_of(sentence) != _values_of(translation):
            raise InputError(
                f"{title}: the translation of {sentence!r} must have the values "
                f"{', '.join(sorted(_values_of(sentence))) or '(none)'}, got {translation!r}."
            )
    code = _header_field(header, "Language") or title
    if code == ENGLISH:
        raise InputError(f"{title}: the header must name a language other than {ENGLISH}.")
    return Language(code, sentences, _header_field(header, "X-Decimal") == ",")


def _unquote(quoted: str, where: str) -> str:
    try:
        value = ast.literal_eval(quoted.strip())
    except (SyntaxError, ValueError):
        value = None
    if not isinstance(value, str):
        raise InputError(f"{where}: expected a text in double quotes, got {quoted!r}.")
    return value


def _values_of(sentence: str) -> set[str]:
    return set(_PLACEHOLDER.findall(sentence))


def _header_field(header: str, name: str) -> str:
    match = re.search(rf"^{name}:\s*(\S+)\s*$", header, re.MULTILINE)
    return match[1] if match else ""
