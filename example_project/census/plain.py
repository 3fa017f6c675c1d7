"""The work that the census does on a file, and a plain loop over many files, without pulljobs."""

import ast
import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

LARGEST: Final = 200_000
"""Largest size in bytes that the census accepts. Every Python has some larger files."""

T = TypeVar("T")

_LABEL: Final = "<census> "
_BLOCKS: Final = ("body", "orelse", "finalbody", "handlers", "cases")

# Warnings of the parser about escape sequences in these files; no other file name has the label.
for _category in (SyntaxWarning, DeprecationWarning):
    warnings.filterwarnings("ignore", category=_category, module=_LABEL)


class TooLarge(ValueError):
    """Error for a file of more than `LARGEST` bytes."""


class Counted(NamedTuple):
    """Numbers of functions, classes, lines and bytes of a file."""

    functions: int
    classes: int
    lines: int
    size: int


@dataclass(frozen=True, slots=True)
class Census:
    """Results of a census: numbers and digest of each file by path, and the files that failed."""

    counted: dict[str, Counted] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each file, in hexadecimal."""
    refused: set[tuple[str, str]] = field(default_factory=set)
    """Consumer and path of each file that failed."""


def count(path: Path) -> Counted:
    """Count the functions, classes, lines and bytes of a Python file.

    Raise TooLarge, OSError or an error of Python's parser.
    """
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
    """Take the whole census of these files in one plain loop."""
    census = Census()
    for path in paths:
        _put(census.counted, count, path, census.refused, "census")
        _put(census.digests, digest, path, census.refused, "digest")
    return census


def _put(
    results: dict[str, T],
    work: Callable[[Path], T],
    path: str,
    refused: set[tuple[str, str]],
    consumer: str,
) -> None:
    try:
        results[path] = work(Path(path))
    except Exception:
        refused.add((consumer, path))


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield every statement. `ast.walk` would spend most of its time in expressions."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for block in _BLOCKS:
            waiting += getattr(node, block, ())
