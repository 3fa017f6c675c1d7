"""A test runs every block of code in the docs, or the kind of the block forbids it."""

import pytest

from example_project.state import BASE_DIR
from tests.docs.runs import PARSED, RUN, kinds_of_blocks
from tests.guides import blocks, pages, texts


def test_every_block_is_run() -> None:
    """`tests/docs/runs.py` names a test for each page and kind of block that is not just parsed."""
    known = set(RUN) | {(page, kind) for page, kind in kinds_of_blocks() if kind in PARSED}
    assert kinds_of_blocks() - known == set()


def test_handlers_are_in_apps() -> None:
    """Pages show handlers in apps such as `orders`, not in the project package `shop`."""
    every = [block for page in pages() for block in blocks(str(page.relative_to(BASE_DIR)))]
    firsts = {block.text.partition("\n")[0] for block in every}
    assert "# orders/pull_handlers.py" in firsts
    assert "# shop/pull_handlers.py" not in firsts


@pytest.mark.parametrize(
    "page",
    [
        "from-celery",
        "from-celery-beat",
        "from-django-tasks",
        "from-faststream",
        "from-nats",
        "from-nsq",
    ],
)
def test_code_of_other_systems_compiles(page: str) -> None:
    for code in texts(f"docs/moving/{page}.md", "py"):
        compile(code, page, "exec")


def test_every_block_that_is_named_exists() -> None:
    assert set(RUN) - kinds_of_blocks() == set()


@pytest.mark.parametrize(("page", "kind"), RUN)
def test_the_test_reads_all_blocks_of_that_kind(page: str, kind: str) -> None:
    """A test of `tests/docs/runs.py` names the page and calls a function that skips no block."""
    code = (BASE_DIR / RUN[page, kind]).read_text("utf-8")
    assert page.rpartition("/")[2] in code
    assert any(way in code for way in ("modules_of(", f'"{kind}")', " blocks("))
