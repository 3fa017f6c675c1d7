"""Python files as the linter of words sees them: docstrings, comments, texts and names."""

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
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
class Source:
    """Parsed file, with its path relative to the root of the repository."""

    path: Path
    code: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.code, str(self.path))

    @cached_property
    def docstrings(self) -> list[Docstring]:
        return sorted(_docstrings(self.tree), key=lambda docstring: docstring.line)

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
        docstrings = {id(node) for node, _kind in _docstring_nodes(self.tree)}
        return [
            Text(node.lineno, node.value)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
            if id(node) not in docstrings and len(node.value.split()) >= WORDS_OF_A_MESSAGE
        ]

    @cached_property
    def names(self) -> list[Name]:
        return [Name(1, self.path.stem), *_names(self.tree, None)]

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        """Classes of the module; a nested one is distinguished by its owner."""
        return [node for node in self.tree.body if isinstance(node, ast.ClassDef)]


def parse(root: Path, path: Path) -> Source:
    """Read a file below the root."""
    return Source(path.relative_to(root), path.read_text("utf-8"))


def kind_of_function(node: Function) -> Kind:
    """Return what a function is used as, judged by its decorators and its name."""
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


def _docstrings(tree: ast.Module) -> Iterator[Docstring]:
    for node, kind in _docstring_nodes(tree):
        yield Docstring(kind, node.lineno, _dedent(str(node.value)))


def _dedent(text: str) -> str:
    first, *others = text.expandtabs().splitlines() or [""]
    return "\n".join([first.strip(), *(line.strip() for line in others)]).rstrip()


def _docstring_nodes(tree: ast.Module) -> Iterator[tuple[ast.Constant, Kind]]:
    """Find the docstrings of definitions, and strings that follow an assignment."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list) or not body:
            continue
        if (kind := _kind(node)) and (constant := _string(body[0])):
            yield constant, kind
        for before, statement in zip(body, body[1:], strict=False):
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


def _names(node: ast.AST, owner: ast.AST | None) -> Iterator[Name]:
    if isinstance(node, Function):
        is_override = isinstance(owner, ast.ClassDef) and bool(owner.bases)
        yield Name(node.lineno, node.name, is_function=True, is_override=is_override)
    elif name := _stored(node):
        yield Name(getattr(node, "lineno", 0), name)
    for child in ast.iter_child_nodes(node):
        yield from _names(child, node)


def _stored(node: ast.AST) -> str | None:
    """Return the name that a node other than a function gives to something."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            return name
        case ast.ClassDef(name=name) | ast.arg(arg=name):
            return name
        case ast.alias(asname=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
            return name
    return None
