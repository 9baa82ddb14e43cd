"""Which scope a name of a Python file belongs to, and which import it comes from."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Origin:
    """What an import binds: a module, or a name of a module."""

    module: str
    name: str | None
    renamed: bool
    """Whether the import gives it another name, with `as`."""


@dataclass(eq=False)
class Scope:
    """A module, class, function, lambda or comprehension."""

    kind: str
    name: str
    parent: Scope | None
    bound: set[str] = field(default_factory=set)
    otherwise: set[str] = field(default_factory=set)
    """Names that are bound by something that is no import."""
    imports: dict[str, Origin] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    """The line up to which a name of a class is not bound yet: until then it is the name around the class."""
    elsewhere: dict[str, str] = field(default_factory=dict)
    """Names declared `global` or `nonlocal`."""

    @property
    def qualified(self) -> str:
        """The dotted name from the module on; comprehensions and lambdas belong to the function around them."""
        above = self.parent.qualified if self.parent else ""
        return above if self.kind in ("module", "comprehension", "lambda") else f"{above}.{self.name}".lstrip(".")

    def home(self, name: str) -> Scope | None:
        """The scope that binds a name used here; None for builtins."""
        scope: Scope | None = self
        declared = self.elsewhere.get(name)
        while scope:
            at_top = scope.parent is None
            skipped = (declared == "global" and not at_top) or (declared == "nonlocal" and scope is self)
            if not skipped and name in scope.bound and name not in scope.elsewhere and (scope is self or scope.kind != "class"):
                return scope
            if scope is not self and scope.elsewhere.get(name) == "global":
                declared = "global"
            scope = scope.parent
        return None

    def origin(self, name: str) -> Origin | None:
        """The import that a name used here comes from, if it comes from imports only."""
        home = self.home(name)
        return home.imports.get(name) if home and name not in home.otherwise else None


class Scopes(ast.NodeVisitor):
    """The scope of every node that holds a name, by the identity of the node."""

    def __init__(self, tree: ast.AST) -> None:
        self.top = self.scope = Scope("module", "", None)
        self.of: dict[int, Scope] = {}
        self.visit(tree)

    def generic_visit(self, node: ast.AST) -> None:
        self.of[id(node)] = self.scope
        super().generic_visit(node)

    def bind(self, name: str | None, origin: Origin | None = None, line: int = 0) -> None:
        if name is not None:
            self.scope.bound.add(name)
            self.scope.lines.setdefault(name, line)
            if origin is None:
                self.scope.otherwise.add(name)
            else:
                self.scope.imports[name] = origin

    def inside(self, kind: str, name: str, parts: list[ast.AST | None], arguments: ast.arguments | None = None) -> Scope:
        self.scope = inner = Scope(kind, name, self.scope)
        if arguments:
            for one in every_argument(arguments):
                self.of[id(one)] = inner
                self.bind(one.arg)
        for part in parts:
            if part is not None:
                self.visit(part)
        self.scope = inner.parent or self.top
        return inner

    def visit_FunctionDef(self, node: Function) -> None:
        self.of[id(node)] = self.scope
        self.bind(node.name, line=node.body[0].lineno - 1 if node.body[0].lineno > node.lineno else node.lineno)
        around = [*node.decorator_list, *node.args.defaults, *node.args.kw_defaults, node.returns]
        for part in [*around, *(one.annotation for one in every_argument(node.args))]:
            if part is not None:
                self.visit(part)
        self.of[id(node.args)] = self.inside("function", node.name, [*node.body], node.args)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.of[id(node)] = self.scope
        for part in [*node.args.defaults, *node.args.kw_defaults]:
            if part is not None:
                self.visit(part)
        self.of[id(node.args)] = self.inside("lambda", "", [node.body], node.args)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.of[id(node)] = self.scope
        self.bind(node.name)
        for part in [*node.decorator_list, *node.bases, *node.keywords]:
            self.visit(part)
        self.inside("class", node.name, [*node.body])

    def comprehension(self, node: Comprehension) -> None:
        self.of[id(node)] = self.scope
        first, *more = node.generators
        self.visit(first.iter)
        values = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        self.inside("comprehension", "", [first.target, *first.ifs, *more, *values])

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = comprehension

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        within = self.scope
        while self.scope.kind == "comprehension" and self.scope.parent:
            self.scope = self.scope.parent
        self.bind(node.target.id)
        self.scope = within
        self.of[id(node)] = self.of[id(node.target)] = within
        self.visit(node.value)

    def visit_Name(self, node: ast.Name) -> None:
        self.of[id(node)] = self.scope
        if not isinstance(node.ctx, ast.Load):
            self.bind(node.id, line=node.lineno)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self.bind(node.name)
        self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs | ast.MatchStar) -> None:
        self.bind(node.name)
        self.generic_visit(node)

    visit_MatchStar = visit_MatchAs

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self.bind(node.rest)
        self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        self.of[id(node)] = self.scope
        for name in node.names:
            self.scope.elsewhere[name] = "global"
            self.top.bound.add(name)
            self.top.otherwise.add(name)

    def visit_Nonlocal(self, node: ast.Nonlocal) -> None:
        self.of[id(node)] = self.scope
        self.scope.elsewhere |= dict.fromkeys(node.names, "nonlocal")

    def visit_Import(self, node: ast.Import) -> None:
        self.of[id(node)] = self.scope
        for alias in node.names:
            first = alias.name.split(".")[0]
            self.bind(alias.asname or first, Origin(alias.name if alias.asname else first, None, alias.asname is not None))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self.of[id(node)] = self.scope
        for alias in node.names:
            renamed = alias.asname not in (None, alias.name)
            self.bind(alias.asname or alias.name, Origin(node.module or "", alias.name, renamed))


def every_argument(arguments: ast.arguments) -> list[ast.arg]:
    """All parameters of a function."""
    found = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return [one for one in found if one is not None]
