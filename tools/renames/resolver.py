"""What each identifier of a Python file becomes by the map."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Mapping

from tools.renames.library import Library, Parsed
from tools.renames.mapping import dotted
from tools.renames.scopes import Origin, Scope


def chain(node: ast.expr) -> list[str] | None:
    """The names of `a.b.c`; None if it is anything else."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id, *reversed(names)] if isinstance(node, ast.Name) else None


class Resolver:
    """Names of one file."""

    def __init__(self, library: Library, parsed: Parsed) -> None:
        self.library, self.parsed, self.renames = library, parsed, library.renames
        self.in_file: Mapping[str, str] = self.renames.in_file.get(parsed.path.removesuffix("i"), {})
        self.private = {old: new for old, new in self.in_file.items() if old.startswith("_")}
        self.taken = self._taken()

    def _taken(self) -> dict[str, set[str]]:
        """Every name that the file binds or uses, after the renames -> the modules it stands for ("" for anything else)."""
        local = [names for (path, _), names in self.renames.in_function.items() if path == self.parsed.path]
        found: dict[str, set[str]] = {name: {""} for names in (self.in_file, *local) for name in names.values()}
        scopes = {id(scope): scope for scope in self.parsed.scopes.of.values()} | {0: self.parsed.scopes.top}
        for scope in scopes.values():
            for name in scope.bound:
                origin = scope.imports.get(name) if name not in scope.otherwise else None
                module = self.submodule(origin) if origin and not origin.renamed else ""
                shown = self.library.new_modules[module].rpartition(".")[2] if module else self.renames.names.get(name, name)
                found.setdefault(shown, set()).add(module)
        used = {node.id for node in ast.walk(self.parsed.tree) if isinstance(node, ast.Name)}
        for name in used - {name for scope in scopes.values() for name in scope.bound}:
            found.setdefault(self.renames.names.get(name, name), set()).add("")
        return found

    def submodule(self, origin: Origin) -> str:
        """The module of this tree that `from a import b` binds; empty if it is something else."""
        return self.library.submodule(origin.module, origin.name) if origin.name is not None else ""

    def bound_name(self, old: str, origin: Origin) -> str:
        """The name that an import without `as` binds."""
        if origin.name is None or not self.library.is_module(origin.module):
            return old
        if module := self.submodule(origin):
            stem = self.library.new_modules[module].rpartition(".")[2]
            free = stem == old or (self.taken.get(stem, set()) <= {module} and not hasattr(builtins, stem))
            return stem if free else old
        return self.library.new_name(origin.module, origin.name)

    def scope(self, node: ast.AST) -> Scope:
        scope = self.parsed.scopes.of.get(id(node), self.parsed.scopes.top)
        names = chain(node) if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load) else None
        early = names is not None and scope.kind == "class" and getattr(node, "lineno", 0) <= scope.lines.get(names[0], 0)
        return scope.parent if early and scope.parent else scope

    def name(self, old: str, scope: Scope) -> str:
        """A name as it is used or bound in a scope."""
        home = scope.home(old)
        origin = scope.origin(old)
        if origin is not None and not origin.renamed:
            return self.bound_name(old, origin)
        if home is not None and home.kind != "class":
            local = self.renames.in_function.get((self.parsed.path, home.qualified), {})
            if home.kind != "module" and old in local:
                return local[old]
            if home.kind == "module" and old in self.in_file:
                return self.in_file[old]
        return self.member(old)

    def member(self, old: str) -> str:
        """An attribute, or a name that nothing narrower is known about."""
        return self.private.get(old) or self.renames.names.get(old, old)

    def module_of_chain(self, names: list[str], scope: Scope) -> tuple[str | None, int]:
        """The module that the first parts of `a.b.c` are, and how many parts; "" if it is not of this tree, None if it is no module."""
        origin = scope.origin(names[0])
        if origin is None:
            return None, 0
        if not self.library.is_module(origin.module):
            return "", 1
        module = origin.module if origin.name is None else self.submodule(origin)
        if not module:
            return None, 0
        count = 1
        while count < len(names) and self.library.submodule(module, names[count]):
            module, count = f"{module}.{names[count]}", count + 1
        return module, count

    def attribute(self, node: ast.Attribute) -> str:
        """The attribute at the end of `a.b.c`."""
        names = chain(node)
        module, count = self.module_of_chain(names, self.scope(node)) if names else (None, 0)
        if names is None or module is None:
            return self.member(node.attr)
        if module == "":
            return node.attr
        if count == len(names):
            return self.library.new_modules[module].rpartition(".")[2]
        return self.library.new_name(module, node.attr) if count == len(names) - 1 else self.member(node.attr)

    def target(self, function: ast.expr) -> tuple[str | None, str]:
        """The module (None if unknown) and the name of what a call calls."""
        names = chain(function)
        if names is None:
            return None, function.attr if isinstance(function, ast.Attribute) else ""
        scope = self.scope(function)
        module, count = self.module_of_chain(names, scope)
        if module and count == len(names) - 1:
            return self.library.home(module, names[-1])
        origin = scope.origin(names[0])
        if len(names) == 1 and origin is not None and origin.name is not None and self.library.is_module(origin.module):
            return self.library.home(origin.module, origin.name)
        home = scope.home(names[0])
        if len(names) == 1 and home is not None and home.kind == "module":
            return dotted(self.parsed.path), names[0]
        return (module if module == "" else None), names[-1]

    def keyword(self, old: str, called: Iterable[tuple[str | None, str]]) -> str:
        """A keyword at a call."""
        for module, name in called:
            if module == "":
                return old
            for (path, qualified), local in self.renames.in_function.items():
                owner = dotted(path)
                known = name if module is None else f"{module}.{name}"
                full = f"{owner}.{qualified}".removesuffix(".__init__").removesuffix(".__new__")
                same = full == known if module is not None else ("." in qualified and full.rpartition(".")[2] == known)
                if same and old in local and old in self.library.parameters(path, qualified):
                    return local[old]
        return self.renames.names.get(old, old)
