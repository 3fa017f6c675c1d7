"""Code of the guides, run: what tests read of the pages, and modules made of their Python."""

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
    """A fenced block: `kind` is the word behind its fence, `line` that of its first line."""

    page: str
    line: int
    kind: str
    text: str


def pages() -> list[Path]:
    built = DOCS / "_build"
    found = [page for page in DOCS.rglob("*.md") if built not in page.parents]
    return [BASE_DIR / "README.md", *sorted(found)]


@cache
def blocks(page: str) -> list[Block]:
    """Of a page by its path from the top of the repository, in lists and quotations as well."""
    text = (BASE_DIR / page).read_text("utf-8")
    return list(_blocks(page, text))


def texts(page: str, kind: str) -> list[str]:
    """All blocks of one kind, in order: there is no way to ask for some of them."""
    found = [block.text for block in blocks(page) if block.kind == kind]
    assert found, f"{page} has no block of {kind}"
    return found


def modules_of(guide: str) -> dict[str, ModuleType]:
    """Every block as the module that its first line names, in order; undo with `forget`."""
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


def assert_like(shown: Any, told: Any) -> None:
    """What a page shows of an answer has its fields and types; a last "..." stands for more."""
    if isinstance(shown, dict):
        assert list(shown) == list(told)
        for name, value in shown.items():
            assert_like(value, told[name])
    elif isinstance(shown, list):
        whole = shown[-1:] != ["..."]
        assert len(shown) == len(told) or not whole
        for value, said in zip(shown if whole else shown[:-1], told, strict=whole):
            assert_like(value, said)
    else:
        assert type(shown) is type(told), (shown, told)


def _blocks(page: str, text: str) -> Iterator[Block]:
    for token in MarkdownIt().parse(text):
        if token.type in ("fence", "code_block") and token.map is not None:
            kind = token.info.strip() if token.type == "fence" else "indented"
            if not kind.startswith("{") or "code" in kind:  # others are directives of MyST's
                yield Block(page, token.map[0] + 2, kind, token.content)


def _make_packages(name: str) -> None:
    parent = name.rpartition(".")[0]
    if parent and parent not in sys.modules:
        _make_packages(parent)
        sys.modules[parent] = ModuleType(parent)
        sys.modules[parent].__path__ = []
