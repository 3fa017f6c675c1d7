"""Names of the public API, and those of them that have no docstring."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.quality.sources import PythonFile

PUBLIC_MODULES: Final = (
    "pulljobs.client",
    "pulljobs.errors",
    "pulljobs.handlers",
    "pulljobs.jobs",
    "pulljobs.operating",
    "pulljobs.publishing",
    "pulljobs.pulling",
    "pulljobs.scheduling",
    "pulljobs.testing",
)
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Missing = tuple[Path, int, str]
"""File, line and name of a definition without a docstring."""


def undocumented(modules: Mapping[Path, PythonFile], dotted: str) -> Iterator[Missing]:
    """Yield the public definitions of a module, own or imported, that have no docstring."""
    source = _source(modules, dotted)
    if source is None:
        return
    for name in _exported(source.tree):
        yield from _without(modules, source, name)


def _source(modules: Mapping[Path, PythonFile], dotted: str) -> PythonFile | None:
    path = Path(*dotted.split("."))
    return modules.get(path.with_suffix(".py")) or modules.get(path / "__init__.py")


def _exported(tree: ast.Module) -> list[str]:
    """Return the names in `__all__`, or else the public definitions of the module."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    return [
        node.name
        for node in tree.body
        if isinstance(node, Definition) and not node.name.startswith("_")
    ]


def _without(
    modules: Mapping[Path, PythonFile], source: PythonFile, name: str
) -> Iterator[Missing]:
    """Yield a definition and its members that have no docstring, wherever it was imported from."""
    for node in source.tree.body:
        if isinstance(node, Definition) and node.name == name:
            yield from _definition(source.path, node, node.name)
            return
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                origin = _source(modules, node.module or "")
                if (alias.asname or alias.name) == name and origin:
                    yield from _without(modules, origin, alias.name)


def _definition(path: Path, node: Definition, name: str) -> Iterator[Missing]:
    if not ast.get_docstring(node):
        yield path, node.lineno, name
    if isinstance(node, ast.ClassDef):
        for member in node.body:
            if isinstance(member, Definition) and not member.name.startswith("_"):
                yield from _definition(path, member, f"{name}.{member.name}")
