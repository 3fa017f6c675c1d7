"""Linter of the words of this repository, by the rules of CONTRIBUTING.md.

    python -m tests.quality.words [PATH ...]

It prints `file:line: rule: text` for every violation, then how many there are of each rule in each
folder. Nothing can be exempted: a rule that is wrong somewhere is changed.
"""

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from example_project.state import BASE_DIR
from tests.quality import vocabulary
from tests.quality.public import PUBLIC_MODULES, undocumented
from tests.quality.sources import Docstring, Kind, PythonFile, Text, parse

PACKAGES: Final = ("pulljobs", "pyspark_pulljobs", "example_project", "benchmarks", "tests", "docs")
OUTSIDE: Final = {"migrations", "adapters", "_build", "planted.toml"}
"""Generated code and pages, adapters in the words of other queues, planted violations."""
PROSE: Final = {".css", ".html", ".ini", ".js", ".md", ".mjs", ".sql", ".toml", ".yml"}
"""Suffixes of files other than Python in which words are checked."""
NAMESPACES: Final = ("pulljobs/client", *PACKAGES)
"""Packages in which a class name is used once: the client, without Django, is read on its own."""
COMMAND: Final = "Command"
"""Name that Django asks for in the modules of management commands."""
CODE: Final = re.compile(r"``?[^`]*``?", re.DOTALL)
CASE_CODE: Final = re.compile(r"(?<![.\w])E\d{1,3}(?!\w)")
NAME_CODE: Final = re.compile(r"_[eE]\d{1,3}(_|$)")
SEMICOLONS: Final = 1

WORDS: Final = vocabulary.any_of(vocabulary.FORBIDDEN_WORDS)
CLAUSES: Final = vocabulary.any_of(vocabulary.CLAUSE_OPENINGS)
NO_VERBS: Final = vocabulary.any_of(vocabulary.FUNCTION_OPENINGS)


@dataclass(frozen=True, order=True)
class Violation:
    """Violation of a rule of the linter, at a line of a file."""

    path: Path
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


Matches = Iterator[tuple[int, str]]
"""Violations of one rule in a file: the line and the text of each."""


def first_line(source: PythonFile) -> Matches:
    """Check that first lines stand alone, begin with a capital or code and end with a period."""
    for docstring in source.docstrings:
        lines = docstring.text.splitlines() or [""]
        first = docstring.first_line
        if len(lines) > 1 and lines[1]:
            yield docstring.line, f"goes on in the next line: {first}"
        elif not first.endswith(".") and not (first.endswith(":") and len(lines) > 1):
            yield docstring.line, f"ends without a period: {first}"
        if not re.match(r"[A-Z`\"]", first):
            yield docstring.line, f"begins without a capital or code: {first}"


def opening(source: PythonFile) -> Matches:
    """Check that first lines do not begin as a fragment."""
    for docstring in source.docstrings:
        if docstring.kind is not Kind.FUNCTION and CLAUSES.match(docstring.first_line):
            yield docstring.line, docstring.first_line


def imperative(source: PythonFile) -> Matches:
    """Check that docstrings of functions and methods begin with an imperative verb."""
    for docstring in source.docstrings:
        if docstring.kind is Kind.FUNCTION and not _is_imperative(docstring.first_line):
            yield docstring.line, docstring.first_line


def _is_imperative(line: str) -> bool:
    if line.startswith("`"):
        return True
    first = re.split(r"[\s.,:;(]", line, maxsplit=1)[0].lower()
    if not first.isalpha() and "-" not in first:
        return False
    is_verb = not NO_VERBS.match(line)
    is_third_person = first.endswith("s") and not first.endswith("ss")
    is_participle = first.endswith(("ed", "ing")) and first not in vocabulary.NOT_PARTICIPLES
    return is_verb and not is_third_person and not is_participle


def forbidden_word(source: PythonFile) -> Matches:
    """Check docstrings, comments and messages for words that the vocabulary forbids."""
    texts: list[Text | Docstring] = [*source.docstrings, *source.comments, *source.messages]
    for text in texts:
        yield from words_in(text)


def words_in(text: Text | Docstring) -> Matches:
    """Find forbidden words in a text, code in backticks excluded."""
    prose = CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text.text)
    for match in WORDS.finditer(prose):
        reason = vocabulary.FORBIDDEN_WORDS[match[0].lower()]
        yield text.line + prose.count("\n", 0, match.start()), f"{match[0]!r}: {reason}"


def semicolons(source: PythonFile) -> Matches:
    """Check that a docstring has at most one semicolon."""
    for docstring in source.docstrings:
        if CODE.sub("", docstring.text).count(";") > SEMICOLONS:
            yield docstring.line, docstring.first_line


def forbidden_name(source: PythonFile) -> Matches:
    """Check names of modules, classes, functions, arguments and variables for forbidden ones."""
    for name in source.names:
        bare = name.name.strip("_").lower()
        reason = vocabulary.FORBIDDEN_NAMES.get(bare)
        if not reason and vocabulary.FORBIDDEN_PARTS.intersection(bare.split("_")):
            reason = "a part of it is dialect"
        if not reason and name.is_function and not name.is_override:
            reason = vocabulary.FORBIDDEN_FUNCTIONS.get(name.name)
        if reason:
            yield name.line, f"{name.name}: {reason}"


def case_code(source: PythonFile) -> Matches:
    """Check that names and docstrings refer to no case by a code of a letter and a number."""
    for docstring in source.docstrings:
        if CASE_CODE.search(docstring.text):
            yield docstring.line, docstring.first_line
    for name in source.names:
        if NAME_CODE.search(name.name):
            yield name.line, name.name


PROSE_RULE: Final = "forbidden-word"
RULES: Final[dict[str, Callable[[PythonFile], Matches]]] = {
    "first-line": first_line,
    "opening": opening,
    "imperative": imperative,
    PROSE_RULE: forbidden_word,
    "semicolons": semicolons,
    "forbidden-name": forbidden_name,
    "case-code": case_code,
}
CLASS_NAME: Final = "class-name"
PUBLIC_DOCSTRING: Final = "public-docstring"


def prose() -> Iterator[Violation]:
    """Check the words of all files that are not Python."""
    top = [path for path in BASE_DIR.iterdir() if path.suffix in PROSE]
    for path in (*top, *_files()):
        if path.suffix in PROSE:
            place = path.relative_to(BASE_DIR)
            for line, text in words_in(Text(1, path.read_text("utf-8"))):
                yield Violation(place, line, PROSE_RULE, text)


def class_names(sources: Iterable[PythonFile]) -> Iterator[Violation]:
    """Check that a class name is used once within a top-level package."""
    first: dict[tuple[str, str], str] = {}
    for source in sources:
        package = next(name for name in NAMESPACES if source.path.is_relative_to(name))
        for node in source.classes:
            if node.name == COMMAND and source.path.parent.name == "commands":
                continue
            here = f"{source.path}:{node.lineno}"
            there = first.setdefault((package, node.name), here)
            if there != here:
                text = f"{node.name} is a class in {there} as well"
                yield Violation(source.path, node.lineno, CLASS_NAME, text)


def public_docstrings(sources: Iterable[PythonFile]) -> Iterator[Violation]:
    """Check that everything in the public API has a docstring."""
    modules = {source.path: source for source in sources}
    for public in PUBLIC_MODULES:
        for path, line, name in undocumented(modules, public):
            yield Violation(path, line, PUBLIC_DOCSTRING, f"{name} has no docstring")


def check(sources: Sequence[PythonFile]) -> list[Violation]:
    """Return the violations of all rules, in the order of files and lines."""
    violations = [
        Violation(source.path, line, rule, text)
        for source in sources
        for rule, find in RULES.items()
        for line, text in find(source)
    ]
    return sorted({*violations, *class_names(sources), *public_docstrings(sources)})


def read_sources() -> list[PythonFile]:
    """Read the Python files of all packages, in the order of their paths."""
    return [parse(BASE_DIR, path) for path in _files() if path.suffix == ".py"]


def _files() -> list[Path]:
    paths = [path for package in PACKAGES for path in (BASE_DIR / package).rglob("*.*")]
    return sorted(path for path in paths if path.is_file() and not OUTSIDE.intersection(path.parts))


def is_below(path: Path, folders: Iterable[Path]) -> bool:
    """Return True if a path is one of these folders or files, or below one of them."""
    return any(path == folder or folder in path.parents for folder in folders)


def folder_of(path: Path) -> str:
    """Return the first two folders of a file's path, or one if there are no more."""
    return "/".join(path.parent.parts[:2])


def main(arguments: Sequence[str]) -> int:
    """Print the violations below the given paths, by default all. Return 1 if there are any."""
    folders = [Path(argument).resolve().relative_to(BASE_DIR) for argument in arguments]
    violations = [
        violation
        for violation in [*check(read_sources()), *prose()]
        if not folders or is_below(violation.path, folders)
    ]
    print(*violations, sep="\n")
    counts = Counter((folder_of(violation.path), violation.rule) for violation in violations)
    for (folder, rule), count in sorted(counts.items()):
        print(f"{count:6} {rule:18} {folder}")
    print(f"{len(violations)} violations")
    return int(bool(violations))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
