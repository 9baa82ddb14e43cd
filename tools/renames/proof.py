"""Proves that a renamed tree differs from an older commit by names only.

The map is applied to the old syntax trees by a transformer that shares nothing with the rewriter but the map and the list of files: scopes
come from `symtable`. The outcome must be the new tree, up to the order of imports and to names and paths within texts.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from tools.renames.library import Library, read_working_tree
from tools.renames.proof_texts import Tails, Texts, path_tails
from tools.renames.proof_trees import Transformer


def differences(old: Library, root: Path) -> list[str]:
    """Every file of the new tree that is not the old one with the map applied."""
    new = read_working_tree(root, old.renames)
    problems, targets, tails = list[str](), old.moves.paths, path_tails(old)
    wanted = set(targets.values()) | set(old.moves.created)
    mine = {path for path in new.texts if path.endswith((".py", ".pyi"))}
    problems += [f"{path}: a new file that comes from no old one." for path in sorted(mine - wanted)]
    for path, target in sorted(targets.items()):
        if path in old.files:
            if target not in new.texts:
                problems.append(f"{path}: is not at {target}.")
            elif problem := difference(old, path, new.texts[target], tails):
                problems.append(f"{target} (was {path}): {problem}")
    for path in old.moves.removed:
        if path in new.texts or not _only_text(old.files[path].tree):
            problems.append(f"{path}: should be removed, and hold nothing but a docstring.")
    problems += [
        f"{path}: should hold a docstring only."
        for path in old.moves.created
        if path not in new.texts or not _only_text(ast.parse(new.texts[path]))
    ]
    return problems


def _only_text(tree: ast.Module) -> bool:
    return all(isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) for node in tree.body)


def difference(old: Library, path: str, text: str, tails: Tails) -> str | None:
    """Where a new file differs from what the map makes of the old one; None if nowhere."""
    parsed = old.files[path]
    expected = Transformer(old, path, parsed.text).transformed(ast.parse(parsed.text))
    return _compare(_sorted_imports(expected), _sorted_imports(ast.parse(text)), Texts(old, path, tails), 0)


def _compare(old: Any, new: Any, texts: Texts, line: int) -> str | None:
    """The first difference of two trees."""
    if isinstance(old, ast.AST):
        if type(old) is not type(new):
            return f"line {getattr(new, 'lineno', line)}: {type(old).__name__} became {type(new).__name__}"
        line = getattr(new, "lineno", line)
        if isinstance(old, ast.Constant) and isinstance(new, ast.Constant) and isinstance(old.value, str) and isinstance(new.value, str):
            exact = getattr(old, "exact", False)
            same = old.value == new.value or (not exact and texts.explains(old.value, new.value))
            return None if same and old.kind == new.kind else f"line {line}: {old.value[:80]!r} became {new.value[:80]!r}"
        pairs = [(getattr(old, name, None), getattr(new, name, None)) for name in old._fields]
    elif isinstance(old, list):
        if not isinstance(new, list) or len(old) != len(new):
            return f"line {line}: {len(old)} parts are not {new if not isinstance(new, list) else len(new)}"
        pairs = list(zip(old, new, strict=True))
    else:
        return None if type(old) is type(new) and (old == new or old != old) else f"line {line}: {old!r} was expected, {new!r} is there"
    return next((problem for first, second in pairs if (problem := _compare(first, second, texts, line))), None)


def _sorted_imports(tree: ast.AST) -> ast.AST:
    """Each run of imports as single statements in one order."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(node, name, None)
            if not isinstance(statements, list):
                continue
            result: list[ast.stmt] = []
            run: dict[str, ast.stmt] = {}
            for statement in [*statements, None]:
                if isinstance(statement, ast.Import | ast.ImportFrom):
                    for alias in statement.names:
                        single = (
                            ast.Import([alias])
                            if isinstance(statement, ast.Import)
                            else ast.ImportFrom(statement.module, [alias], statement.level)
                        )
                        run[ast.dump(single)] = ast.copy_location(single, statement)
                else:
                    result += [run[key] for key in sorted(run)]
                    run = {}
                    result += [statement] if statement else []
            setattr(node, name, result)
    return tree
