"""The code of the guide for users of Celery's canvas works."""

from collections.abc import Iterator
from types import ModuleType

import pytest

from pulljobs import handlers
from pulljobs.publishing import publish
from pulljobs.testing import drain, run_workflow
from tests.guides import forget, modules_of


@pytest.fixture
def code() -> Iterator[dict[str, ModuleType]]:
    try:
        yield modules_of("moving/from-celerys-canvas.md")
    finally:
        forget("press")


@pytest.mark.django_db
def test_a_chain_and_a_chord_run_as_workflows(code: dict[str, ModuleType]) -> None:
    handlers.sync_consumers()
    press = code["press.pull_handlers"]
    assert run_workflow(press.invoice, {"order": 7}).result == "invoice over 40"
    assert run_workflow(press.print_catalogue, {"pages": 3}).result == "page 0, page 1, page 2"


@pytest.mark.django_db
def test_a_handler_chains_and_a_batch_calls_back(code: dict[str, ModuleType]) -> None:
    handlers.sync_consumers()
    publish("shop-fetches", {"order": 7})
    assert drain()[-1].job.result == "invoice over 40"
    code["press.nightly"].render_all(2)
    assert drain()[-1].job.result == "invoice over 40"
