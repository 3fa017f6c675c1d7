"""`pulljobs syncconsumers` creates rows from code, and changes rows only with --update."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from pulljobs import handlers
from pulljobs.models import Consumer
from tests.diagnosis.commands import answer, text
from tests.handling import registry_of_its_own
from tests.sessions import contents

PLACE = "orders/invoicing"


@pytest.fixture(autouse=True)
def _of_the_test(consumer: Consumer) -> Iterator[None]:
    """Give the consumer options that an operator changed in the admin."""
    consumer.max_waiting, consumer.retry_strategy = 3, "constant:60"
    consumer.save()
    with registry_of_its_own():
        registered(retry_strategy="1,2", max_retries=2, lease_duration=timedelta(seconds=30))
        yield


def registered(name: str = "invoicing", **options: Any) -> None:
    handlers.handler(channel="orders", consumer=name, **options)(print)


def change(option: str, was: Any, new: Any) -> dict[str, Any]:
    return {"consumer": PLACE, "option": option, "was": was, "is": new}


CHANGES = [change("retry_strategy", "constant:60", "1,2"), change("max_retries", 5, 2)]


def test_existing_rows_do_not_change_without_update() -> None:
    before = contents()
    assert answer("syncconsumers") == ({"consumers": [PLACE]}, 0)
    assert contents() == before


def test_update_writes_the_options_of_the_code_and_lists_them() -> None:
    """A second update changes nothing, and other fields do not change."""
    before = Consumer.objects.get()
    result, code = answer("syncconsumers", "--update")
    assert (result["changes"], code) == (CHANGES, 0)
    row = Consumer.objects.get()
    assert (row.retry_delays, row.max_retries, row.max_waiting) == ([1.0, 2.0], 2, 3)
    assert row.changed_at > before.changed_at
    assert answer("syncconsumers", "--update")[0]["changes"] == []
    assert Consumer.objects.get().changed_at == row.changed_at
    assert text("syncconsumers", "--update").endswith("All rows match the code.\n")


def test_a_dry_run_lists_the_updates_and_writes_nothing() -> None:
    registered("mailing")
    before = contents()
    result, _code = answer("syncconsumers", "--update", "--dry-run")
    assert result == {"consumers": [PLACE, "orders/mailing"], "dry_run": True, "changes": CHANGES}
    assert answer("syncconsumers", "--dry-run")[0] == result
    assert "WOULD BE" in text("syncconsumers", "--dry-run")
    assert contents() == before
    answer("syncconsumers", "--update")
    assert Consumer.objects.filter(name="mailing").exists()
