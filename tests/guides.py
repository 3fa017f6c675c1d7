"""Code blocks of the guides, and modules made of their Python."""

import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from markdown_it import MarkdownIt

from example_project.state import BASE_DIR

DOCS = BASE_DIR / "docs"


class Block(NamedTuple):
    """Code block: `kind` is the text behind its fence, `line` the number of its first code line."""

    page: str
    line: int
    kind: str
    text: str


def pages() -> list[Path]:
    built = DOCS / "_build"
    sources = [page for page in DOCS.rglob("*.md") if built not in page.parents]
    return [BASE_DIR / "README.md", *sorted(sources)]


@cache
def blocks(page: str) -> list[Block]:
    """Return the code blocks of a page, whose path is relative to the repository."""
    text = (BASE_DIR / page).read_text("utf-8")
    return list(_blocks(page, text))


def texts(page: str, kind: str) -> list[str]:
    """Return the texts of all blocks of one kind in order, so that no test can leave some out."""
    matching = [block.text for block in blocks(page) if block.kind == kind]
    assert matching, f"{page} has no block of {kind}"
    return matching


def modules_of(guide: str) -> dict[str, ModuleType]:
    """Run every Python block of a guide as the module that its first line names.

    Return the modules by name. `forget` removes them from `sys.modules`.
    """
    made = {}
    for code in texts(f"docs/{guide}", "python"):
        first = code.partition("\n")[0]
        assert first.startswith("# "), f"{guide}: no file name in {first!r}"
        name = first[2:].removesuffix(".py").replace("/", ".")
        _make_packages(name)
        made[name] = sys.modules[name] = ModuleType(name)
        exec(compile(code, f"{guide}: {first[2:]}", "exec"), made[name].__dict__)
    return made


def forget(package: str) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        del sys.modules[name]


def assert_like(shown: Any, actual: Any) -> None:
    """Check that an answer in a guide has the fields and types of the actual answer.

    If a list in the guide ends with "...", the actual list may have more elements.
    """
    if isinstance(shown, dict):
        assert list(shown) == list(actual)
        for name, value in shown.items():
            assert_like(value, actual[name])
    elif isinstance(shown, list):
        whole = shown[-1:] != ["..."]
        assert len(shown) == len(actual) or not whole
        for value, element in zip(shown if whole else shown[:-1], actual, strict=whole):
            assert_like(value, element)
    else:
        assert type(shown) is type(actual), (shown, actual)


def _blocks(page: str, text: str) -> Iterator[Block]:
    for token in MarkdownIt().parse(text):
        if token.type in ("fence", "code_block") and token.map is not None:
            kind = token.info.strip() if token.type == "fence" else "indented"
            if not kind.startswith("{") or "code" in kind:  # the rest are directives of MyST
                yield Block(page, token.map[0] + 2, kind, token.content)


def _make_packages(name: str) -> None:
    parent = name.rpartition(".")[0]
    if parent and parent not in sys.modules:
        _make_packages(parent)
        sys.modules[parent] = ModuleType(parent)
        sys.modules[parent].__path__ = []
