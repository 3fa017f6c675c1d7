"""The work on a file, and a loop over many, with nothing of pulljobs in it."""

import ast
import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

LARGEST: Final = 200_000
"""Bytes that the census takes; every Python comes with files above it, as `_pydecimal.py`."""

T = TypeVar("T")

_LABEL: Final = "<census> "
_BLOCKS: Final = ("body", "orelse", "finalbody", "handlers", "cases")

# What the parser thinks of other people's escape sequences; the label is in no other file name.
for _category in (SyntaxWarning, DeprecationWarning):
    warnings.filterwarnings("ignore", category=_category, module=_LABEL)


class TooLarge(ValueError):
    """The census does not take files of that size."""


class Counted(NamedTuple):
    functions: int
    classes: int
    lines: int
    size: int


@dataclass(frozen=True, slots=True)
class Census:
    """By path; `refused` has (consumer, path) of each file that could not be done."""

    counted: dict[str, Counted] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    refused: set[tuple[str, str]] = field(default_factory=set)


def count(path: Path) -> Counted:
    """Raise TooLarge, OSError, or what the parser says of a file that it can't read."""
    source = path.read_bytes()
    if len(source) > LARGEST:
        raise TooLarge(f"{len(source):,} bytes, the census takes {LARGEST:,} at the most")
    functions = classes = 0
    for node in _statements(ast.parse(source, filename=f"{_LABEL}{path}")):
        functions += isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        classes += isinstance(node, ast.ClassDef)
    return Counted(functions, classes, len(source.splitlines()), len(source))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def take(paths: Iterable[str]) -> Census:
    """The whole census in one plain loop."""
    census = Census()
    for path in paths:
        _put(census.counted, count, path, census.refused, "census")
        _put(census.digests, digest, path, census.refused, "digest")
    return census


def _put(
    found: dict[str, T],
    work: Callable[[Path], T],
    path: str,
    refused: set[tuple[str, str]],
    consumer: str,
) -> None:
    try:
        found[path] = work(Path(path))
    except Exception:
        refused.add((consumer, path))


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Every statement; expressions hold none, and `ast.walk` would spend most of its time there."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for block in _BLOCKS:
            waiting += getattr(node, block, ())
