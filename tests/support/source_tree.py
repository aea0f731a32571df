"""The source of Legato as syntax trees, and which names its files read."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "legato"
SOURCES = {str(path.relative_to(PACKAGE)): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
TREES = {name: ast.parse(text) for name, text in SOURCES.items()}


def names_read(tree: ast.AST) -> set[str]:
    """Every ``a.b`` that is read, and every name that is imported, with its module."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names.add(f"{node.value.id}.{node.attr}")
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def files_that_name(*names: str) -> set[str]:
    """Return the files that read one of ``names``."""
    return {name for name, tree in TREES.items() if not names_read(tree).isdisjoint(names)}
