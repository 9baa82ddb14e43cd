"""Where the nodes of a syntax tree stand in the text, those inside f-strings included, which Python 3.11 takes for one token."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

PREFIX = re.compile(r"(?i)([rbuf]*)('''|\"\"\"|'|\")")


@dataclass(frozen=True)
class Token:
    """A token with its place in the text, in characters from the start."""

    kind: int
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def prefix(self) -> str:
        """The letters before the quotes of a string, in lower case."""
        match = PREFIX.match(self.text) if self.kind == tokenize.STRING else None
        return match.group(1).lower() if match else ""


@dataclass(frozen=True)
class Lines:
    """From lines and columns to characters from the start."""

    starts: tuple[int, ...]
    lines: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Lines:
        lines = text.splitlines(keepends=True) if "\x0c" not in text else re.findall(r"[^\n]*\n|[^\n]+", text)
        starts = [0]
        for line in lines:
            starts.append(starts[-1] + len(line))
        return cls(tuple(starts), (*lines, ""))

    def place(self, line: int, column: int) -> int:
        """Of a token, whose columns are characters."""
        return self.starts[line - 1] + column

    def node_place(self, line: int, column: int) -> int:
        """Of a node, whose columns are bytes of UTF-8."""
        text = self.lines[line - 1]
        return self.starts[line - 1] + (column if text.isascii() else len(text.encode()[:column].decode()))


def tokens_of(text: str) -> list[Token]:
    """The tokens of a Python text."""
    lines = Lines.of(text)
    return [
        Token(token.type, token.string, lines.place(*token.start))
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in (tokenize.ENDMARKER, tokenize.DEDENT, tokenize.INDENT)
    ]


@dataclass(frozen=True)
class Segment:
    """A part of an f-string: text, or an expression between braces."""

    start: int
    end: int
    is_expression: bool


def _expression_end(text: str, at: int) -> int:
    """Where the expression of a replacement field ends: at its `}`, `!r`, `:` or the `=` of a debug print."""
    depth, quote = 0, ""
    while True:
        char = text[at]
        if quote:
            if text.startswith(quote, at):
                at += len(quote) - 1
                quote = ""
        elif char in "'\"":
            quote = text[at : at + 3] if text[at : at + 3] in ("'''", '"""') else char
            at += len(quote) - 1
        elif char in "([{":
            depth += 1
        elif depth and char in ")]}":
            depth -= 1
        elif not depth and (char in "}:" or (char == "!" and text[at + 1] != "=")):
            return at
        at += 1


def segments(token: Token) -> list[Segment]:
    """The parts of an f-string in order; those of a format specification follow the expression that they belong to."""
    match = PREFIX.match(token.text)
    if match is None:
        raise AssertionError(f"{token.text!r} is no string.")
    text, found = token.text, list[Segment]()

    def read(at: int, stop: int, nested: bool) -> int:
        begin = at
        while at < stop:
            if not nested and text[at : at + 2] in ("{{", "}}"):
                at += 2
            elif text[at] == "}":
                break
            elif text[at] == "{":
                found.append(Segment(begin, at, False))
                end = _expression_end(text, at + 1)
                inner = text[at + 1 : end].rstrip()
                shown = inner.endswith("=") and inner[-2:-1] not in ("=", "!", "<", ">")
                found.append(Segment(at + 1, at + 1 + len(inner) - shown, True))
                if text[end] == "!":
                    end += 2
                at = read(end + 1, stop, True) if text[end] == ":" else end
                at, begin = at + 1, at + 1
            else:
                at += 1
        found.append(Segment(begin, at, False))
        return at

    read(match.end(), len(text) - len(match.group(2)), False)
    return [one for one in found if one.start < one.end]


def expressions(joined: ast.JoinedStr) -> Iterator[ast.expr]:
    """The expressions of an f-string in the order of the text."""
    for value in joined.values:
        if isinstance(value, ast.FormattedValue):
            yield value.value
            if isinstance(value.format_spec, ast.JoinedStr):
                yield from expressions(value.format_spec)


Places = dict[int, tuple[int, int]]


def positions(tree: ast.AST, text: str, shift: int = 0) -> Places:
    """Identity of a node -> its start and end in the text, in characters, plus a shift."""
    lines, places, inside = Lines.of(text), Places(), set[int]()
    strings = [token for token in tokens_of(text) if "f" in token.prefix] if "{" in text else []
    for node in ast.walk(tree):
        if id(node) in inside or not hasattr(node, "lineno"):
            continue
        located = cast(ast.expr, node)
        start = lines.node_place(located.lineno, located.col_offset)
        end = lines.node_place(located.end_lineno or 0, located.end_col_offset or 0)
        places[id(node)] = start + shift, end + shift
        if isinstance(node, ast.JoinedStr):
            inside |= {id(inner) for inner in ast.walk(node)}
            parts = [(token, part) for token in strings if start <= token.start < end for part in segments(token) if part.is_expression]
            for expression, (token, part) in zip(expressions(node), parts, strict=True):
                again = f"({token.text[part.start : part.end]})"
                parsed = ast.parse(again, mode="eval").body
                known = positions(parsed, again, shift + token.start + part.start - 1)
                places |= {
                    id(old): known[id(new)] for old, new in zip(ast.walk(expression), ast.walk(parsed), strict=True) if id(new) in known
                }
    return places
