"""Titles and questions for tests: honest ones, markup, and invalid ones."""

from __future__ import annotations

import json

from metricshuffle import Task
from metricshuffle.models import content_digest

TITLE = "Wege in Zürich"
QUESTION = "Wie viele Minuten war heute Ihr Weg zur Arbeit?"
HOSTILE = {
    "script": "<script>globalThis.smuggled = true</script>",
    "attribute": "\"><img src=x onerror='globalThis.smuggled = true'>",
    "comment": "--></title></style><svg onload=globalThis.smuggled=true>",
    "template": "{{7*7}} {% raw %} ${7*7} #{7*7}",
    "formula of a spreadsheet": "=cmd|' /C calc'!A0",
    "markup of a terminal": "[bold red]x[/bold red] [link=file:///etc]y[/] :smile:",
    "markdown": (
        "**b** [x](javascript:smuggled) `c` ![i](http://h/i) &#x202e; ~~s~~ "
        "$\\href{javascript:smuggled}{x}$"
    ),
    "quotation": "Minutes?” Nothing leaves your device. “And that is verified",
    "like an option": "--help",
    "like a sentence": "Verified: computed again from the mechanism.",
    "emoji": "🚲 ☀️ 👍🏽",
    "umlauts": "Größe, Öl, café, Ǆ, 你好, नमस्ते",
    "right to left": "כמה דקות נסעת היום?",
}
"""Printable one-line texts that are accepted unchanged and never interpreted as markup."""
REFUSED = {
    "escape code": ("a\x1b[31mred", "U+001B at place 2"),
    "other escape code": ("a\x9b31m", "U+009B"),
    "null": ("a\0", "U+0000"),
    "backspace": ("ab\b\bcd", "U+0008"),
    "tab": ("a\tb", "U+0009"),
    "right-to-left override": ("abc\u202edef", "U+202E at place 4"),
    "left-to-right mark": ("abc\u200e", "U+200E"),
    "isolate": ("\u2067abc\u2069", "U+2067 at place 1"),
    "zero-width space": ("ab\u200bc", "U+200B"),
    "zero-width joiner": ("a\u200db", "U+200D"),
    "byte order mark": ("\ufeffabc", "U+FEFF"),
    "soft hyphen": ("ab\u00adc", "U+00AD"),
    "filler of Hangul": ("\u3164", "U+3164"),
    "blank of Braille": ("\u2800", "U+2800"),
    "selector of variants": ("a\ufe00", "U+FE00"),
    "tag": ("a\U000e0041", "U+E0041"),
    "private use": ("a\ue000", "U+E000"),
    "half a pair": ("a\ud800", "U+D800"),
    "heap of accents": ("a" + "\u0301" * 9, "more than 4 accents"),
    "accents alone": ("\u0301\u0301", "is blank"),
    "line end": ("a\nVerified: yes", "a line end at character 2"),
    "carriage return": ("a\rb", "a line end"),
    "line separator": ("a\u2028b", "a line end"),
    "empty": ("", "is blank"),
    "spaces": ("   ", "is blank"),
    "too long": ("x" * 501, "has 501 characters"),
    "far too long": ("x" * 10**6, "has 1,000,000 characters"),
}
"""Rejected texts, and what the error says."""


def forged(task: Task, **words: object) -> str:
    """Text of a task with other fields, and the matching digest."""
    content = {
        name: value for name, value in json.loads(task.to_json()).items() if name != "digest"
    } | words
    return json.dumps({**content, "digest": content_digest(content)})
