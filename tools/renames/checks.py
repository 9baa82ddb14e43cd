"""What must not be renamed, and what the map gets wrong."""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import PurePosixPath

from tools.renames.library import Library, Parsed
from tools.renames.mapping import PACKAGE, SOURCE
from tools.renames.outside import external_names
from tools.renames.rewriter import BY_NAME, LISTS, NAMES_ONLY
from tools.renames.scopes import every_argument

MAY_REPEAT = frozenset({"__init__", "__main__", "base", "_kernels"})
SQL = re.compile(r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM|CREATE TABLE|CREATE INDEX|ALTER TABLE)\b")
COMMENT = re.compile(r"/\*.*?\*/|(?<!:)//[^\n]*", re.DOTALL)
JINJA = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)


def refusals(library: Library) -> list[str]:
    """Everything that forbids to apply the map, one sentence each."""
    return [*module_problems(library), *name_problems(library), *scope_problems(library)]


def module_problems(library: Library) -> Iterator[str]:
    """Paths that are not there, meet, or have a stem that is taken."""
    keys, targets = library.renames.modules, library.moves.paths
    there = {PurePosixPath(path).with_suffix("").parts for path in library.paths if path.endswith(".py")}
    there |= {parts[:count] for parts in there for count in range(1, len(parts))}
    yield from (f"[modules] {'/'.join(old)}: there is no such module or folder." for old in keys if old not in there)
    counts = Counter(targets.values())
    yield from (f"[modules] {new}: {count} files would be there." for new, count in counts.items() if count > 1)
    modules = {PurePosixPath(new).with_suffix("").parts for new in targets.values() if new.endswith(".py")}
    folders = {parts[:count] for parts in modules for count in range(1, len(parts))}
    yield from (f"[modules] {'/'.join(both)}: would be a module and a folder." for both in sorted(modules & folders))
    stems = defaultdict(list)
    for old, new in targets.items():
        if new.startswith(SOURCE) and new.endswith(".py"):
            stems[PurePosixPath(new).stem].append((old, new))
    for stem, pairs in stems.items():
        fresh = [new for old, new in pairs if PurePosixPath(old).stem != stem]
        if fresh and len(pairs) > 1 and stem not in MAY_REPEAT:
            yield f"[modules] {fresh[0]}: {stem} is also the name of {next(new for _, new in pairs if new != fresh[0])}."
        if fresh and (keyword.iskeyword(stem) or not stem.isidentifier()):
            yield f"[modules] {fresh[0]}: {stem} is no name for a module."
    for path in library.moves.removed:
        if not all(isinstance(node, ast.Expr) for node in library.files[path].tree.body):
            yield f"{path}: its folder loses all modules, but it holds code; rename the folder as well."
    for path in library.moves.created:
        if not library.renames.packages.get(PurePosixPath(path).parts[:-1]):
            yield f"{path}: is a new folder; say under [packages] what it holds."
    yield from chain_problems(library)


def chain_problems(library: Library) -> Iterator[str]:
    """Modules that are reached as attributes of a package which they leave."""
    from tools.renames.resolver import Resolver, chain

    leaving = {
        old
        for old, new in library.new_modules.items()
        if "." in old and library.new_modules[old.rpartition(".")[0]] != new.rpartition(".")[0]
    }
    stems = {old.rpartition(".")[2] for old in leaving}
    for path, parsed in library.files.items():
        if not any(re.search(rf"\.{stem}\b", parsed.text) for stem in stems):
            continue
        resolver = Resolver(library, parsed)
        for node in ast.walk(parsed.tree):
            names = chain(node) if isinstance(node, ast.Attribute) and node.attr in stems else None
            module, count = resolver.module_of_chain(names, resolver.scope(node)) if names else (None, 0)
            if names and isinstance(node, ast.Attribute) and module in leaving and count == len(names) > 1:
                yield f"{path}:{node.lineno}: {'.'.join(names)} leaves its package; import the module itself first."


class Uses:
    """Which identifiers a tree has, and which of them others rely on."""

    def __init__(self, library: Library) -> None:
        self.identifiers: set[str] = set()
        self.reasons: dict[str, set[str]] = defaultdict(set)
        self.strings: dict[str, str] = {}
        models = classes_below(library, {"BaseModel"})
        public = {name for path, file in library.files.items() if path.endswith(".pyi") for name in file.scopes.top.imports}
        for path, parsed in library.files.items():
            self.read(path, parsed, models, public)
        for name in public:
            self.reasons[name].add("a public name")
        for path, text in library.texts.items():
            self.read_other(path, text)

    def read(self, path: str, parsed: Parsed, models: set[str], public: set[str]) -> None:
        in_source = path.startswith(SOURCE)
        follows = strings_that_follow(parsed.tree)
        for node in ast.walk(parsed.tree):
            match node:
                case ast.Name():
                    self.identifiers.add(node.id)
                case ast.Attribute():
                    self.identifiers.add(node.attr)
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    self.identifiers |= {node.name, *(one.arg for one in every_argument(node.args))}
                    if in_source:
                        self.function(node, public)
                case ast.ClassDef():
                    self.identifiers.add(node.name)
                    if in_source:
                        self.fields(node, models, public)
                case ast.keyword(arg=str(name)) | ast.alias(name=name):
                    self.identifiers.add(name)
                case ast.Dict() if in_source:
                    self.keys([key for key in node.keys if key is not None], path)
                case ast.Subscript() if in_source:
                    self.keys([node.slice], path)
                case ast.Constant(value=str(text)):
                    if id(node) not in follows:
                        self.strings.setdefault(text, f"{path}:{node.lineno}")
                    if SQL.search(text):
                        for word in re.findall(r"\w+", text):
                            self.reasons[word].add(f"in SQL ({path})")
                case ast.FormattedValue() if isinstance(node.value, ast.Name) and f"{{{node.value.id}=" in parsed.text:
                    self.reasons[node.value.id].add(f"printed by an f-string with = ({path})")

    def keys(self, nodes: list[ast.expr], path: str) -> None:
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                self.reasons[node.value].add(f"a key ({path})")

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, public: set[str]) -> None:
        for one in every_argument(node.args):
            if node.name in public:
                self.reasons[one.arg].add(f"a parameter of {PACKAGE}.{node.name}")
        is_command = any("command" in ast.unparse(decorator) for decorator in node.decorator_list)
        for one in every_argument(node.args):
            if is_command or (one.annotation is not None and "typer" in ast.unparse(one.annotation)):
                self.reasons[one.arg].add(f"an option of the command {node.name}")

    def fields(self, node: ast.ClassDef, models: set[str], public: set[str]) -> None:
        is_data = any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
        kind = "a field of the model" if node.name in models else "a field of the dataclass" if is_data and node.name in public else ""
        for part in node.body:
            if kind and isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                self.reasons[part.target.id].add(f"{kind} {node.name}")
            elif node.name in public and isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) and not part.name.startswith("_"):
                self.reasons[part.name].add(f"a public method of {node.name}")
                for one in every_argument(part.args):
                    self.reasons[one.arg].add(f"a parameter of {node.name}.{part.name}")

    def read_other(self, path: str, text: str) -> None:
        if path.endswith(".jinja"):
            words, where = re.findall(r"[A-Za-z_]\w*", " ".join(JINJA.findall(text))), "in a template"
        elif path.endswith((".js", ".mjs", ".ts")):
            words, where = re.findall(r"[A-Za-z_]\w*", COMMENT.sub("", text)), "in JavaScript"
        elif path.endswith(".json") and "lock" not in path:
            words, where = re.findall(r"\"([A-Za-z_]\w*)\"\s*:", text), "a key"
        else:
            return
        for word in set(words):
            self.reasons[word].add(f"{where} ({path})")


def strings_that_follow(tree: ast.AST) -> set[int]:
    """Strings that the rewriter renames by their place: names of attributes, exports and annotations."""
    found: list[ast.AST | None] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            found += node.args[1:2] if name in BY_NAME else node.args if name in NAMES_ONLY else node.args[:1] if name == "cast" else []
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in LISTS:
            found.append(node.value)
        elif isinstance(node, ast.AnnAssign):
            found.append(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found += [node.returns, *(one.annotation for one in every_argument(node.args))]
    return {id(inner) for node in found if node is not None for inner in ast.walk(node)}


@lru_cache(maxsize=1)
def class_parents(library: Library) -> Mapping[str, set[str]]:
    """The names of the classes that each class names as its bases."""
    parents: dict[str, set[str]] = defaultdict(set)
    for file in library.files.values():
        for node in ast.walk(file.tree):
            if isinstance(node, ast.ClassDef):
                parents[node.name] |= {ast.unparse(base).split("[")[0].rpartition(".")[2] for base in node.bases}
    return parents


def classes_below(library: Library, bases: set[str]) -> set[str]:
    """The names of classes that inherit, also through others, from one of these."""
    found, parents = set(bases), class_parents(library)
    while more := {name for name, above in parents.items() if above & found} - found:
        found |= more
    return found


def name_problems(library: Library) -> Iterator[str]:
    """Global names that are not there, are taken, or that others rely on."""
    renames = library.renames
    if not renames.names:
        return
    uses, outside = Uses(library), external_names(library)
    for old, new in renames.names.items():
        if old not in uses.identifiers:
            yield f"[names] {old}: there is no such identifier."
        if keyword.iskeyword(new) or hasattr(builtins, new) or not new.isidentifier():
            yield f"[names] {old} = {new}: is a keyword, a builtin or no identifier."
        if list(renames.names.values()).count(new) > 1:
            yield f"[names] {old} = {new}: two names would become one."
        if old in renames.allowed:
            continue
        if new in uses.identifiers and new not in renames.names:
            yield f"[names] {old} = {new}: {new} is an identifier already."
        if reasons := uses.reasons.get(new, set()) - uses.reasons.get(old, set()):
            yield f"[names] {old} = {new}: {new} is {min(reasons)}."
        for name in (old, new):
            if name in outside:
                yield f"[names] {old} = {new}: {outside[name]} has a {name} too; rename it under [scoped], or list {old} under [allowed]."
        if relied := uses.reasons.get(old):
            yield f"[names] {old}: is {', '.join(sorted(relied)[:3])}; list it under [allowed] with a reason to rename it all the same."
        elif old in uses.strings and old not in renames.strings:
            yield f"[names] {old}: is also a string ({uses.strings[old]}); say under [strings] what becomes of it."


def scope_problems(library: Library) -> Iterator[str]:
    """Names of one file or function that are not there, or whose new name is taken there."""
    for path, names in library.renames.in_file.items():
        where = f"[scoped] {path}"
        parsed = library.files.get(path)
        if parsed is None:
            yield f"{where}: there is no such file."
            continue
        words = {node.id for node in ast.walk(parsed.tree) if isinstance(node, ast.Name)} | parsed.scopes.top.bound
        members = {node.attr for node in ast.walk(parsed.tree) if isinstance(node, ast.Attribute)}
        defined = {node.name for node in ast.walk(parsed.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
        for old, new in names.items():
            if old not in parsed.scopes.top.bound and not (old.startswith("_") and old in words | members | defined):
                yield f"{where}: {old} is neither a name of the module nor a private one."
            if new in words | members | defined and new not in names:
                yield f"{where}: {old} = {new} is taken there."
            if keyword.iskeyword(new) or hasattr(builtins, new) or not new.isidentifier():
                yield f"{where}: {old} = {new} is a keyword, a builtin or no identifier."
            yield from private_problems(library, path, old, members | defined)
    for (path, qualified), names in library.renames.in_function.items():
        yield from function_problems(library, path, qualified, names)


def private_problems(library: Library, path: str, old: str, members: set[str]) -> Iterator[str]:
    """A private member that another file uses without having its own, or in a subclass."""
    if not old.startswith("_") or old not in members or old in library.renames.allowed:
        return
    own = {node.name for node in ast.walk(library.files[path].tree) if isinstance(node, ast.ClassDef)}
    below = classes_below(library, own)
    for other, parsed in library.files.items():
        if other == path or not re.search(rf"\b{old}\b", parsed.text):
            continue
        used = any(isinstance(node, ast.Attribute) and node.attr == old for node in ast.walk(parsed.tree))
        defines = re.search(rf"def {old}\b|self\.{old}(?::[^=]*)? =|^    {old}: ", parsed.text, re.MULTILINE)
        inherits = any(isinstance(node, ast.ClassDef) and node.name in below - own for node in ast.walk(parsed.tree))
        if (used and not defines) or (inherits and (used or defines)):
            yield f"[scoped] {path}: {old} is used in {other} too; put it under [names], or list it under [allowed]."


def function_problems(library: Library, path: str, qualified: str, names: Mapping[str, str]) -> Iterator[str]:
    """Local names: they must be there, and their new names must be free in the function and around it."""
    where = f"[scoped] {path}::{qualified}"
    parsed = library.files.get(path)
    scopes = (
        {id(scope): scope for scope in parsed.scopes.of.values() if scope.qualified == qualified and scope.kind != "class"}
        if parsed
        else {}
    )
    if parsed is None or not scopes:
        yield f"{where}: there is no such function."
        return
    functions = {
        id(parsed.scopes.of[id(node.args)]): node
        for node in ast.walk(parsed.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    node = next(functions[one] for one in scopes if one in functions)
    words = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)} | {
        inner.arg for inner in ast.walk(node) if isinstance(inner, ast.arg)
    }
    for old, new in names.items():
        if not any(old in scope.bound for scope in scopes.values()):
            yield f"{where}: {old} is no local name or parameter."
        if new in words and new not in names:
            yield f"{where}: {old} = {new} is taken there."
        if keyword.iskeyword(new) or hasattr(builtins, new) or not new.isidentifier():
            yield f"{where}: {old} = {new} is a keyword, a builtin or no identifier."
        is_parameter = old in library.parameters(path, qualified)
        if is_parameter and old not in library.renames.allowed:
            if any(word in ast.unparse(one) for one in node.decorator_list for word in ("command", "fixture")):
                yield f"{where}: {old} is an option of a command or asks for a fixture; list it under [allowed]."
            yield from fixture_problems(library, where, node, old)
        if any(
            isinstance(inner, ast.Call) and ast.unparse(inner.func) in ("locals", "vars") and not inner.args for inner in ast.walk(node)
        ):
            yield f"{where}: the function looks at its local names by locals()."


FIXTURES = frozenset({"tmp_path", "monkeypatch", "capsys", "capfd", "request", "recwarn", "caplog", "tmp_path_factory"})


@lru_cache(maxsize=1)
def fixtures_of(library: Library) -> frozenset[str]:
    """The names of all fixtures of the tests."""
    return frozenset(
        inner.name
        for file in library.files.values()
        if "fixture" in file.text
        for inner in ast.walk(file.tree)
        if isinstance(inner, ast.FunctionDef) and any("fixture" in ast.unparse(one) for one in inner.decorator_list)
    )


def fixture_problems(library: Library, where: str, node: ast.AST, old: str) -> Iterator[str]:
    """A parameter of a test that is the name of a fixture."""
    if getattr(node, "name", "").startswith("test_") and old in FIXTURES | fixtures_of(library):
        yield f"{where}: {old} is a fixture; put it under [names]."
