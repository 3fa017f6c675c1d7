"""Python files as the linter of words sees them: docstrings, comments, texts and names."""

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef
PROPERTIES = {"property", "cached_property", "classproperty", "setter", "getter", "deleter"}
WORDS_OF_A_MESSAGE = 4
"""Strings of fewer words are keys and values, not sentences."""


class Kind(StrEnum):
    """Kind of the definition that a docstring describes."""

    MODULE = "module"
    CLASS = "class"
    FUNCTION = "function"
    PROPERTY = "property"
    FIXTURE = "fixture"
    TEST = "test"
    ATTRIBUTE = "attribute"


@dataclass(frozen=True)
class Docstring:
    """Docstring of one definition, without its indentation."""

    kind: Kind
    line: int
    text: str

    @property
    def first_line(self) -> str:
        return self.text.partition("\n")[0].strip()


@dataclass(frozen=True)
class Text:
    """Comment or string literal."""

    line: int
    text: str


@dataclass(frozen=True)
class Name:
    """Name that the file defines."""

    line: int
    name: str
    is_function: bool = False
    is_override: bool = False
    """True for a method of a class with a base, which may give it its name."""


@dataclass(frozen=True)
class PythonFile:
    """Parsed file, with its path relative to the root of the repository."""

    path: Path
    code: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.code, str(self.path))

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def docstrings(self) -> list[Docstring]:
        docstrings = [
            Docstring(kind, node.lineno, _dedent(str(node.value)))
            for node, kind in self._docstring_nodes
        ]
        return sorted(docstrings, key=lambda docstring: docstring.line)

    @cached_property
    def _docstring_nodes(self) -> list[tuple[ast.Constant, Kind]]:
        return [pair for node in self.nodes for pair in _docstrings(node)]

    @cached_property
    def comments(self) -> list[Text]:
        tokens = tokenize.generate_tokens(io.StringIO(self.code).readline)
        return [
            Text(token.start[0], token.string.lstrip("#: "))
            for token in tokens
            if token.type == tokenize.COMMENT
        ]

    @cached_property
    def messages(self) -> list[Text]:
        """String literals that read like a sentence, docstrings excluded."""
        docstrings = {id(node) for node, _kind in self._docstring_nodes}
        return [
            Text(node.lineno, node.value)
            for node in self.nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
            if id(node) not in docstrings and len(node.value.split()) >= WORDS_OF_A_MESSAGE
        ]

    @cached_property
    def names(self) -> list[Name]:
        overrides = {id(member) for node in self.nodes for member in _overrides(node)}
        names = [_name(node, is_override=id(node) in overrides) for node in self.nodes]
        return [Name(1, self.path.stem), *filter(None, names)]

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        """Classes of the module, without nested classes, whose names need not be unique."""
        return [node for node in self.tree.body if isinstance(node, ast.ClassDef)]


def parse(root: Path, path: Path) -> PythonFile:
    """Read and parse a file, whose path is kept relative to `root`."""
    return PythonFile(path.relative_to(root), path.read_text("utf-8"))


def kind_of_function(node: Function) -> Kind:
    """Return the kind of a function by its decorators and its name."""
    decorators = {_decorator(decorator) for decorator in node.decorator_list}
    if decorators & PROPERTIES:
        return Kind.PROPERTY
    if "fixture" in decorators:
        return Kind.FIXTURE
    return Kind.TEST if node.name.startswith("test_") else Kind.FUNCTION


def _decorator(node: ast.expr) -> str:
    """Return the last part of a decorator's dotted name."""
    if isinstance(node, ast.Call):
        return _decorator(node.func)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _dedent(text: str) -> str:
    first, *others = text.expandtabs().splitlines() or [""]
    return "\n".join([first.strip(), *(line.strip() for line in others)]).rstrip()


def _docstrings(node: ast.AST) -> Iterator[tuple[ast.Constant, Kind]]:
    """Yield the docstring of a definition and those of attributes in it, each with its kind."""
    body = getattr(node, "body", None)
    if not isinstance(body, list) or not body:
        return
    if (kind := _kind(node)) and (constant := _string(body[0])):
        yield constant, kind
    for before, statement in pairwise(body):
        if isinstance(before, ast.Assign | ast.AnnAssign) and (constant := _string(statement)):
            yield constant, Kind.ATTRIBUTE


def _kind(node: ast.AST) -> Kind | None:
    match node:
        case ast.Module():
            return Kind.MODULE
        case ast.ClassDef():
            return Kind.CLASS
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return kind_of_function(node)
    return None


def _string(node: ast.stmt) -> ast.Constant | None:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return node.value if isinstance(node.value.value, str) else None
    return None


def _overrides(node: ast.AST) -> list[ast.stmt]:
    """Return the statements in the body of a class with a base, which may prescribe their names."""
    return node.body if isinstance(node, ast.ClassDef) and node.bases else []


def _name(node: ast.AST, *, is_override: bool) -> Name | None:
    if isinstance(node, Function):
        return Name(node.lineno, node.name, is_function=True, is_override=is_override)
    name = _stored(node)
    return Name(getattr(node, "lineno", 0), name) if name else None


def _stored(node: ast.AST) -> str | None:
    """Return the name that an assignment, a class, an argument, an import or a pattern defines."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            return name
        case ast.ClassDef(name=name) | ast.arg(arg=name):
            return name
        case ast.alias(asname=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
            return name
    return None
