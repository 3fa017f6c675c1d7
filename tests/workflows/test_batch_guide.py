"""The code of the guide on batches works."""

from collections.abc import Iterator
from types import ModuleType

import pytest

from pulljobs import batches, handlers
from pulljobs.testing import drain
from tests.guides import forget, modules_of
from tests.handling import registry_of_its_own


@pytest.fixture
def code() -> Iterator[dict[str, ModuleType]]:
    with registry_of_its_own():
        try:
            yield modules_of("guides/batches.md")
        finally:
            forget("invoices")


@pytest.mark.django_db
def test_a_report_runs_once_after_all_invoices(code: dict[str, ModuleType]) -> None:
    handlers.sync_consumers()
    made = code["invoices.nightly"].bill(range(3))
    results = [run.job.result for run in drain() if run.channel == "reports"]
    assert results == [3_000]
    assert batches.get(made).state == "completed"


@pytest.mark.django_db
def test_an_import_ends_after_it_was_closed_and_regions_are_members(
    code: dict[str, ModuleType],
) -> None:
    handlers.sync_consumers()
    imports = code["invoices.imports"]
    made = imports.begin_import()
    imports.import_page(made, [1, 2])
    assert not [run for run in drain() if run.channel == "reports"]
    imports.end_import(made)
    outer = code["invoices.regions"].bill_regions({"north": [1], "south": [2, 3]})
    assert len([run for run in drain() if run.channel == "reports"]) == 2
    assert (batches.get(outer).members, batches.get(outer).delivered) == (2, 2)
