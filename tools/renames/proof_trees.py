"""The map applied to a syntax tree, for the proof: written apart from the rewriter, with the scopes that Python's own compiler finds."""

from __future__ import annotations

import ast
import builtins
import re
import symtable
from collections.abc import Callable

from tools.renames.library import Library
from tools.renames.mapping import dotted

BY_NAME = frozenset({"getattr", "hasattr", "setattr", "delattr", "object"})
NAMES_ONLY = frozenset({"attrgetter", "methodcaller", "getfixturevalue", "usefixtures"})
BLOCKS = {ast.Lambda: "lambda", ast.ListComp: "listcomp", ast.SetComp: "setcomp", ast.DictComp: "dictcomp", ast.GeneratorExp: "genexpr"}
Definition = ast.FunctionDef | ast.AsyncFunctionDef


class Transformer(ast.NodeTransformer):
    """The map on a syntax tree."""

    def __init__(self, library: Library, path: str, text: str) -> None:
        self.library, self.renames, self.path = library, library.renames, path
        self.own = self.renames.in_file.get(path.removesuffix("i"), {})
        self.blocks = [symtable.symtable(text, path, "exec")]
        self.waiting = [list(self.blocks[0].get_children())]
        self.imported: list[dict[str, tuple[str, str | None] | None]] = []
        """Per block: name -> (module, name) that an import without `as` binds, None if something else binds it too."""
        self.aliased: list[set[str]] = []
        self.names_of_file: set[str] = set()
        self.so_far: list[set[str]] = [set()]
        """Per block: what the statements before have bound. In a class, a name is that of the module until then."""

    def transformed(self, tree: ast.Module) -> ast.Module:
        self.names_of_file = self.every_name(tree)
        self.enter(tree)
        self.generic_visit(tree)
        return tree

    def every_name(self, tree: ast.Module) -> set[str]:
        """What the names of the file become, without those of imported modules: a module's new name must be none of them."""
        found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} | {
            node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)
        }
        found |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
        found |= {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name}
        modules: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom | ast.Import):
                for alias in node.names:
                    plain = isinstance(node, ast.ImportFrom) and alias.asname is None and self.module_of(node.module or "", alias.name)
                    (modules if plain else found).add(alias.asname or alias.name.split(".")[0])
        bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
        bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        found -= modules - bound
        local = [names for (path, _), names in self.renames.in_function.items() if path == self.path]
        return {self.renames.names.get(name, name) for name in found} | {new for names in (self.own, *local) for new in names.values()}

    def module_of(self, module: str, name: str) -> str:
        """The module that `from module import name` binds, unless the package itself binds the name to something else."""
        path = self.library.modules.get(module, "")
        own = [node for file in (path, path + "i") if file in self.library.files for node in self.library.files[file].tree.body]
        passed_on = {
            alias.asname or alias.name for node in own if isinstance(node, ast.ImportFrom) and node.module != module for alias in node.names
        }
        return f"{module}.{name}" if name not in passed_on and self.library.is_module(f"{module}.{name}") else ""

    # Blocks

    def enter(self, node: ast.AST) -> None:
        """Note what the imports of the block that begins bind."""
        found: dict[str, tuple[str, str | None] | None] = {}
        aliased = set()
        body: list[ast.AST] = [*node.body] if isinstance(node, Definition) else [*ast.iter_child_nodes(node)]
        while body:
            one = body.pop()
            if isinstance(one, ast.Import | ast.ImportFrom):
                for alias in one.names:
                    bound = alias.asname or alias.name.split(".")[0]
                    if alias.asname not in (None, alias.name):
                        aliased.add(bound)
                    if isinstance(one, ast.Import):
                        found[bound] = (alias.name if alias.asname else bound, None)
                    else:
                        found[bound] = (one.module or "", alias.name)
            elif not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
                body += ast.iter_child_nodes(one)
        self.imported.append(found)
        self.aliased.append(aliased)

    def block(self, kind: str, line: int, node: ast.AST) -> None:
        children = self.waiting[-1]
        index = next(at for at, child in enumerate(children) if child.get_name() == kind and child.get_lineno() == line)
        self.blocks.append(children.pop(index))
        self.waiting.append(list(self.blocks[-1].get_children()))
        self.so_far.append(set())
        self.enter(node)

    def leave(self) -> None:
        for stack in (self.blocks, self.waiting, self.imported, self.aliased, self.so_far):
            stack.pop()

    def owner(self, name: str) -> int | None:
        """The index of the block that binds a name used in the innermost block; None for builtins."""
        for index in range(len(self.blocks) - 1, 0, -1):
            block = self.blocks[index]
            innermost = index == len(self.blocks) - 1
            if block.get_type() == "class" and not (innermost and name in self.so_far[index]):
                continue
            try:
                symbol = block.lookup(name)
            except KeyError:
                continue
            if symbol.is_declared_global():
                break
            if symbol.is_local():
                return index
        top = self.blocks[0]
        known = name in top.get_identifiers() and (top.lookup(name).is_assigned() or top.lookup(name).is_imported())
        return 0 if known or self.declared_global(top, name) else None

    def declared_global(self, block: symtable.SymbolTable, name: str) -> bool:
        children = block.get_children()
        return any(
            (name in one.get_identifiers() and one.lookup(name).is_declared_global()) or self.declared_global(one, name) for one in children
        )

    def qualified(self, index: int) -> str:
        """The functions and classes around a block; comprehensions and lambdas belong to the function around them."""
        return ".".join(block.get_name() for block in self.blocks[1 : index + 1] if block.get_name() not in BLOCKS.values())

    def origin(self, name: str) -> tuple[str, str | None] | None:
        """What an import binds a name to, if nothing else binds it."""
        index = self.owner(name)
        if index is None or name not in self.imported[index]:
            return None
        symbol = self.blocks[index].lookup(name)
        return None if symbol.is_assigned() and not symbol.is_imported() else self.imported[index][name]

    # Names

    def renamed(self, name: str) -> str:
        index, origin = self.owner(name), self.origin(name)
        if origin is not None and index is not None and name not in self.aliased[index]:
            module, member = origin
            if member is None or not self.library.is_module(module):
                return name
            if full := self.module_of(module, member):
                stem = self.library.new_modules[full].rpartition(".")[2]
                return stem if stem == name or (stem not in self.names_of_file and not hasattr(builtins, stem)) else name
            return self.library.new_name(module, member)
        if index is not None and self.blocks[index].get_type() != "class":
            local = self.renames.in_function.get((self.path, self.qualified(index)), {})
            if index > 0 and name in local:
                return local[name]
            if index == 0 and name in self.own:
                return self.own[name]
        return self.member(name)

    def member(self, name: str) -> str:
        return self.own[name] if name.startswith("_") and name in self.own else self.renames.names.get(name, name)

    def root(self, node: ast.expr) -> tuple[str | None, list[str]]:
        """(module that `a.b` of `a.b.c.d` is, [c, d]); "" for a module of others, None if it is no module."""
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.insert(0, node.attr)
            node = node.value
        origin = self.origin(node.id) if isinstance(node, ast.Name) else None
        if origin is None:
            return None, names
        if not self.library.is_module(origin[0]):
            return "", names
        module = origin[0] if origin[1] is None else self.module_of(origin[0], origin[1])
        while module and names and self.module_of(module, names[0]):
            module = f"{module}.{names.pop(0)}"
        return module or None, names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        if not isinstance(node.ctx, ast.Load):
            self.so_far[-1].add(node.id)
        node.id = self.renamed(node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.Attribute:
        module, names = self.root(node)
        if module is None or len(names) > 1:
            node.attr = node.attr if module == "" else self.member(node.attr)
        elif module:
            node.attr = self.library.new_name(module, names[0]) if names else self.library.new_modules[module].rpartition(".")[2]
        self.visit(node.value)
        return node

    # Definitions and blocks

    def all_of(self, nodes: list[ast.expr] | list[ast.expr | None] | list[ast.stmt] | list[ast.keyword]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def statements(self, body: list[ast.stmt]) -> list[ast.stmt]:
        found = [self.visit(statement) for statement in body]
        return [inner for one in found for inner in (one if isinstance(one, list) else [one])]

    def visit_FunctionDef(self, node: Definition) -> Definition:
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
        known = [one for one in arguments if one is not None]
        line, kind = node.lineno, node.name
        before = {one.arg: one for one in known}
        self.all_of([*node.args.defaults, *node.args.kw_defaults])
        for annotation in (node.returns, *(one.annotation for one in known)):
            self.text_annotation(annotation)
        self.all_of([node.returns, *(one.annotation for one in known)])
        decorators = list(node.decorator_list)
        called = [self.called(one.func)[1] if isinstance(one, ast.Call) else "" for one in decorators]
        self.all_of(decorators)
        self.so_far[-1].add(node.name)
        node.name = self.renamed(node.name)
        self.block(kind, line, node)
        names = {old: self.renamed(old) for old in before}
        for old, one in before.items():
            one.arg = names[old]
        self.parameters_in_decorators(decorators, called, names)
        node.body = self.statements(node.body)
        self.leave()
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> Definition:
        return self.visit_FunctionDef(node)

    def parameters_in_decorators(self, decorators: list[ast.expr], called: list[str], names: dict[str, str]) -> None:
        """Tests name their parameters in decorators: as strings or as keywords."""
        for call, name in zip(decorators, called, strict=True):
            if not isinstance(call, ast.Call):
                continue
            if name == "parametrize" and call.args:
                first = call.args[0]
                for part in first.elts if isinstance(first, ast.Tuple | ast.List) else [first]:
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        part.value = re.sub(r"\w+", lambda match: names.get(match[0], match[0]), part.value)
            elif name in ("given", "example"):
                for keyword in call.keywords:
                    keyword.arg = names.get(keyword.arg or "", keyword.arg)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        line, kind = node.lineno, node.name
        self.all_of([*node.decorator_list, *node.bases])
        self.all_of(node.keywords)
        self.so_far[-1].add(node.name)
        node.name = self.renamed(node.name)
        self.block(kind, line, node)
        node.body = self.statements(node.body)
        self.leave()
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        self.all_of([*node.args.defaults, *node.args.kw_defaults])
        self.block("lambda", node.lineno, node)
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
        for one in arguments:
            if one is not None:
                one.arg = self.renamed(one.arg)
        self.visit(node.body)
        self.leave()
        return node

    def comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> ast.expr:
        first, *more = node.generators
        self.visit(first.iter)
        self.block(BLOCKS[type(node)], node.lineno, node)
        self.all_of([first.target, *first.ifs])
        for generator in more:
            self.visit(generator)
        self.all_of([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])
        self.leave()
        return node

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = comprehension

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        node.name = self.renamed(node.name) if node.name else None
        return self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs | ast.MatchStar) -> ast.AST:
        node.name = self.renamed(node.name) if node.name else None
        return self.generic_visit(node)

    visit_MatchStar = visit_MatchAs

    def visit_MatchMapping(self, node: ast.MatchMapping) -> ast.AST:
        node.rest = self.renamed(node.rest) if node.rest else None
        return self.generic_visit(node)

    def visit_MatchClass(self, node: ast.MatchClass) -> ast.AST:
        node.kwd_attrs = [self.member(name) for name in node.kwd_attrs]
        return self.generic_visit(node)

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> ast.AST:
        node.names = [self.renamed(name) for name in node.names]
        return node

    visit_Nonlocal = visit_Global

    # Imports, calls and texts

    def visit_Import(self, node: ast.Import) -> ast.AST:
        for alias in node.names:
            alias.name = self.library.new_modules.get(alias.name, alias.name)
            alias.asname = self.renamed(alias.asname) if alias.asname else None
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> list[ast.stmt]:
        result: list[ast.stmt] = []
        for alias in node.names:
            module, name, twice = node.module or "", alias.name, alias.asname == alias.name
            bound = self.renamed(alias.asname or name)
            if name == "*" or not self.library.is_module(module):
                target = name
            elif full := self.module_of(module, name):
                module, _, target = self.library.new_modules[full].rpartition(".")
            else:
                module, target = self.library.new_modules[module], self.library.new_name(module, name)
            module = self.library.new_modules.get(module, module) if target == "*" else module
            shown = None if target == "*" or (bound == target and not twice) else bound
            result.append(ast.copy_location(ast.ImportFrom(module, [ast.alias(target, shown)], node.level), node))
        return result

    def called(self, function: ast.expr) -> tuple[str | None, str]:
        """The module (None if unknown, "" if of others) and the name of a function that is called."""
        module, names = self.root(function)
        last = function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
        if module is not None and isinstance(function, ast.Attribute):
            return self.library.home(module, names[0]) if module and len(names) == 1 else ("" if module == "" else None, last)
        if isinstance(function, ast.Name):
            origin = self.origin(function.id)
            if origin is not None:
                outside = not self.library.is_module(origin[0])
                return ("", last) if outside else self.library.home(origin[0], origin[1] or "")
            return (dotted(self.path) if self.owner(function.id) == 0 else None), last
        return None, last

    def visit_Call(self, node: ast.Call) -> ast.AST:
        module, name = self.called(node.func)
        about = self.called(node.args[0]) if name == "partial" and node.args else (module, name)
        for keyword in node.keywords:
            if keyword.arg is not None:
                keyword.arg = self.keyword(keyword.arg, *about)
        if name in BY_NAME and len(node.args) > 1:
            owner, rest = self.root(node.args[0])
            self.whole(node.args[1], lambda old: self.member_of(owner, rest, old))
        elif name in NAMES_ONLY:
            for argument in node.args:
                self.whole(argument, self.member)
        elif name == "cast" and node.args:
            self.text_annotation(node.args[0])
        return self.generic_visit(node)

    def member_of(self, module: str | None, inner: list[str], name: str) -> str:
        if module is None or (module and inner):
            return self.member(name)
        return self.library.new_name(module, name) if module else name

    def keyword(self, old: str, module: str | None, name: str) -> str:
        if module == "":
            return old
        for (path, qualified), local in self.renames.in_function.items():
            if old not in local or old not in self.library.parameters(path, qualified):
                continue
            parts = qualified.split(".")
            parts = parts[:-1] if parts[-1] in ("__init__", "__new__") else parts
            if module is None and "." in qualified and parts[-1] == name:
                return local[old]
            if module == dotted(path) and ".".join(parts) == name:
                return local[old]
        return self.renames.names.get(old, old)

    def whole(self, node: ast.expr, renamed: Callable[[str], str]) -> None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value, node.exact = renamed(node.value), True  # type: ignore[attr-defined]

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        target = node.targets[0]
        if isinstance(target, ast.Name) and target.id in ("__all__", "__slots__", "__match_args__"):
            for part in node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else []:
                self.whole(part, self.renamed)
        self.visit(node.value)
        self.all_of(node.targets)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.text_annotation(node.annotation)
        self.all_of([node.annotation, node.value, node.target])
        return node

    def text_annotation(self, node: ast.AST | None) -> None:
        """Annotations that are written as strings."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = re.sub(r"[A-Za-z_]\w*", lambda match: self.renamed(match[0]), node.value)
        elif isinstance(node, ast.Subscript):
            names = {part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)} | {getattr(node.value, "attr", "")}
            inside = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            for part in [] if "Literal" in names else inside[:1] if "Annotated" in names else inside:
                self.text_annotation(part)
        elif isinstance(node, ast.BinOp | ast.List | ast.Tuple):
            for inner in ast.iter_child_nodes(node):
                self.text_annotation(inner)
