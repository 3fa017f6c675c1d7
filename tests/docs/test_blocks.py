"""No block of code in the docs escapes: a test runs it, or its kind says why none does."""

import pytest

from example_project.state import BASE_DIR
from tests.docs.runs import PARSED, RUN, shown
from tests.guides import blocks, pages, texts


def test_every_block_is_run() -> None:
    """Name the test that runs it in `tests/docs/runs.py`, or give it the kind that it is of."""
    known = set(RUN) | {(page, kind) for page, kind in shown() if kind in PARSED}
    assert shown() - known == set()


def test_handlers_are_in_apps() -> None:
    """The quickstart's `shop` is the project's package: no worker finds a handler there."""
    every = [block for page in pages() for block in blocks(str(page.relative_to(BASE_DIR)))]
    firsts = {block.text.partition("\n")[0] for block in every}
    assert "# orders/pull_handlers.py" in firsts
    assert "# shop/pull_handlers.py" not in firsts


@pytest.mark.parametrize("page", ["from-celery", "from-django-tasks"])
def test_code_of_others_compiles(page: str) -> None:
    for code in texts(f"docs/moving/{page}.md", "py"):
        compile(code, page, "exec")


def test_nothing_is_said_to_be_run_that_is_not_there() -> None:
    assert set(RUN) - shown() == set()


@pytest.mark.parametrize(("page", "kind"), RUN)
def test_the_test_reads_all_blocks_of_that_kind(page: str, kind: str) -> None:
    """By `texts`, `modules_of` and the like, which leave none out, and by the name of the page."""
    code = (BASE_DIR / RUN[page, kind]).read_text("utf-8")
    assert page.rpartition("/")[2] in code
    assert any(way in code for way in ("modules_of(", f'"{kind}")', " blocks("))
