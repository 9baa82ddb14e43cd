"""Rewrites a Python file by the map: edits at the places of identifiers, so that layout and comments stay as they are."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Callable
from functools import cached_property

from tools.renames.library import Library, Parsed
from tools.renames.positions import PREFIX, Token, positions, segments, tokens_of
from tools.renames.prose import WORD, Prose
from tools.renames.resolver import Resolver, chain
from tools.renames.scopes import Function, Origin, Scope, every_argument

BY_NAME = frozenset({"getattr", "hasattr", "setattr", "delattr", "object"})
"""Calls whose second argument names an attribute of the first (`object` is that of `mock.patch`)."""
NAMES_ONLY = frozenset({"attrgetter", "methodcaller", "getfixturevalue", "usefixtures"})
LISTS = frozenset({"__all__", "__slots__", "__match_args__"})
DEFINITION = re.compile(r"(?:async\s+)?(?:def|class)\s+")


class Rewriter:
    """The edits of one file."""

    def __init__(self, library: Library, prose: Prose, parsed: Parsed) -> None:
        self.library, self.prose, self.parsed = library, prose, parsed
        self.resolver = Resolver(library, parsed)
        self.edits: dict[int, tuple[int, str]] = {}
        """Start -> end and new text."""
        self.whole: dict[int, str] = {}
        """Start of a string -> its new content, where the string as a whole is a name."""

    @cached_property
    def places(self) -> dict[int, tuple[int, int]]:
        return positions(self.parsed.tree, self.parsed.text)

    @cached_property
    def tokens(self) -> list[Token]:
        return tokens_of(self.parsed.text)

    def rewritten(self) -> str:
        """The new text."""
        for node in ast.walk(self.parsed.tree):
            self.node(node)
        self.texts()
        text = self.parsed.text
        for start in sorted(self.edits, reverse=True):
            end, new = self.edits[start]
            text = text[:start] + new + text[end:]
        return text

    def put(self, start: int, old: str, new: str) -> None:
        if old != new:
            found = self.parsed.text[start : start + len(old)]
            if found != old:
                raise AssertionError(f"{self.parsed.path}: {old!r} was expected at character {start}, but {found!r} is there.")
            self.edits[start] = start + len(old), new

    def put_in_tokens(self, start: int, end: int, old: str, new: str) -> None:
        """At the last token between two places that is the name."""
        hits = [token.start for token in self.tokens if start <= token.start < end and token.kind == tokenize.NAME and token.text == old]
        self.put(hits[-1], old, new)

    def node(self, node: ast.AST) -> None:
        """The edits of one node, without those of its parts."""
        resolver, scope = self.resolver, self.resolver.scope(node)
        start, end = self.places.get(id(node), (0, 0))
        match node:
            case ast.Name():
                self.put(start, node.id, resolver.name(node.id, scope))
            case ast.Attribute():
                self.put(end - len(node.attr), node.attr, resolver.attribute(node))
            case ast.arg():
                self.put(start, node.arg, resolver.name(node.arg, scope))
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                match = DEFINITION.match(self.parsed.text, start)
                self.put(match.end() if match else start, node.name, resolver.name(node.name, scope))
                self.decorators(node)
            case ast.Call():
                self.call(node)
            case ast.ExceptHandler(name=str(name)):
                self.put_in_tokens(start, self.places[id(node.body[0])][0], name, resolver.name(name, scope))
            case ast.Global() | ast.Nonlocal():
                for name in node.names:
                    self.put_in_tokens(start, end, name, resolver.name(name, scope))
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                self.put(end - len(name), name, resolver.name(name, scope))
            case ast.MatchMapping(rest=str(name)):
                self.put_in_tokens(start, end, name, resolver.name(name, scope))
            case ast.MatchClass():
                for name, pattern in zip(node.kwd_attrs, node.kwd_patterns, strict=True):
                    self.put_in_tokens(start, self.places[id(pattern)][0], name, resolver.member(name))
            case ast.Import() | ast.ImportFrom():
                self.statement(node, start, end)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.List(elts=parts) | ast.Tuple(elts=parts)) if name in LISTS:
                for part in parts:
                    self.whole_string(part, lambda old: resolver.name(old, scope))
            case ast.AnnAssign():
                self.annotation(node.annotation, scope)
        if isinstance(node, Function):
            for annotation in (node.returns, *(one.annotation for one in every_argument(node.args))):
                self.annotation(annotation, scope)

    def call(self, node: ast.Call) -> None:
        """Keywords, and strings that name attributes."""
        resolver = self.resolver
        called = [resolver.target(node.func)]
        name = called[0][1]
        if name == "partial" and node.args:
            called = [resolver.target(node.args[0])]
        for keyword in node.keywords:
            if keyword.arg is not None:
                self.put(self.places[id(keyword)][0], keyword.arg, resolver.keyword(keyword.arg, called))
        if name in BY_NAME and len(node.args) > 1:
            self.whole_string(node.args[1], lambda old: self.attribute_of(node.args[0], old))
        elif name in NAMES_ONLY:
            for argument in node.args:
                self.whole_string(argument, resolver.member)
        elif name == "cast" and node.args:
            self.annotation(node.args[0], resolver.scope(node))

    def attribute_of(self, owner: ast.expr, old: str) -> str:
        names = chain(owner)
        module, count = self.resolver.module_of_chain(names, self.resolver.scope(owner)) if names else (None, 0)
        if module is None or names is None:
            return self.resolver.member(old)
        if module == "":
            return old
        return self.library.new_name(module, old) if count == len(names) else self.resolver.member(old)

    def decorators(self, node: Function | ast.ClassDef) -> None:
        """The names of parameters in the decorators of tests: strings of `parametrize`, keywords of `given` and `example`."""
        if isinstance(node, ast.ClassDef):
            return
        inner = self.resolver.scope(node.args)
        names = {one.arg: self.resolver.name(one.arg, inner) for one in every_argument(node.args)}

        def renamed(text: str) -> str:
            return WORD.sub(lambda match: names.get(match[0], match[0]), text)

        for call in node.decorator_list:
            if not isinstance(call, ast.Call):
                continue
            called = self.resolver.target(call.func)[1]
            if called == "parametrize" and call.args:
                first = call.args[0]
                for part in first.elts if isinstance(first, ast.Tuple | ast.List) else [first]:
                    self.whole_string(part, renamed)
            elif called in ("given", "example"):
                for keyword in call.keywords:
                    if keyword.arg in names:
                        self.put(self.places[id(keyword)][0], keyword.arg, names[keyword.arg])

    def whole_string(self, node: ast.expr, renamed: Callable[[str], str]) -> None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (new := renamed(node.value)) != node.value:
            self.whole[self.places[id(node)][0]] = new

    def annotation(self, node: ast.AST | None, scope: Scope) -> None:
        """Strings in an annotation, unless they are values of `Literal` or belong to `Annotated`."""
        if isinstance(node, ast.Subscript):
            kind = (chain(node.value) or [""])[-1]
            inner = node.slice.elts[:1] if kind == "Annotated" and isinstance(node.slice, ast.Tuple) else [node.slice]
            for part in [] if kind == "Literal" else inner:
                self.annotation(part, scope)
        elif isinstance(node, ast.Constant):
            self.whole_string(node, lambda old: WORD.sub(lambda match: self.resolver.name(match[0], scope), old))
        elif isinstance(node, ast.BinOp | ast.Tuple | ast.List):
            for child in ast.iter_child_nodes(node):
                self.annotation(child, scope)

    def statement(self, node: ast.Import | ast.ImportFrom, start: int, end: int) -> None:
        """An import; one whose names go to several modules becomes several."""
        groups: dict[str, list[str]] = {}
        changed = False
        for module, name, new_module, new_name in self.aliases(node):
            changed |= (module, name) != (new_module, new_name)
            groups.setdefault(new_module, []).append(new_name)
        if not changed:
            return
        line = self.parsed.text.rfind("\n", 0, start) + 1
        before = self.parsed.text[line:start]
        comments = [token.text for token in self.tokens if token.kind == tokenize.COMMENT and start <= token.start < end]
        if isinstance(node, ast.Import):
            statements = ["import " + ", ".join(names) for names in groups.values()]
        else:
            statements = [f"from {module} import {', '.join(names)}" for module, names in groups.items()]
        if comments:
            statements[-1] += "  " + "  ".join(comments)
        self.edits[start] = end, (f"\n{before}" if not before.strip() else "; ").join(statements)

    def aliases(self, node: ast.Import | ast.ImportFrom) -> list[tuple[str, str, str, str]]:
        """(old module, old alias, new module, new alias) of each name of an import."""
        found, resolver, scope = [], self.resolver, self.resolver.scope(node)
        for alias in node.names:
            old = f"{alias.name} as {alias.asname}" if alias.asname else alias.name
            if isinstance(node, ast.Import):
                new = self.library.new_modules.get(alias.name, alias.name)
                shown = f"{new} as {resolver.name(alias.asname, scope)}" if alias.asname else new
                found.append(("", old, "", shown))
                continue
            module = node.module or ""
            bound = resolver.name(alias.asname or alias.name, scope)
            if not self.library.is_module(module) or alias.name == "*":
                new_module, target = self.library.new_modules.get(module, module), alias.name
            elif submodule := resolver.submodule(Origin(module, alias.name, False)):
                new_module, _, target = self.library.new_modules[submodule].rpartition(".")
            else:
                new_module, target = self.library.new_modules[module], self.library.new_name(module, alias.name)
            twice = alias.asname == alias.name and bound == target
            found.append((module, old, new_module, f"{target} as {bound}" if twice or (bound != target and target != "*") else target))
        return found

    def texts(self) -> None:
        """Comments and strings."""
        alone = {
            self.places[id(node.value)][0]
            for node in ast.walk(self.parsed.tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        renames = self.library.renames
        names = {**renames.names, **self.resolver.in_file}
        strings = {**renames.strings, **renames.file_strings.get(self.parsed.path, {})}
        for token in self.tokens:
            if token.kind == tokenize.COMMENT:
                self.put(token.start, token.text, self.prose.document(token.text, names))
            elif token.kind == tokenize.STRING and "f" in token.prefix:
                for part in segments(token):
                    if not part.is_expression:
                        text = token.text[part.start : part.end]
                        self.put(token.start + part.start, text, self.prose.code_text(text))
            elif token.kind == tokenize.STRING:
                quotes = PREFIX.match(token.text)
                begin, width = (quotes.end(), len(quotes[2])) if quotes else (0, 0)
                inner = token.text[begin : len(token.text) - width]
                if token.start in self.whole:
                    new = self.whole[token.start]
                elif token.start in alone:
                    new = self.prose.document(inner, names)
                else:
                    new = strings.get(inner) or self.prose.code_text(inner)
                self.put(token.start + begin, inner, new)
