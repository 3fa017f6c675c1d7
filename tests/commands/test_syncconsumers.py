"""`pulljobs syncconsumers` creates rows from code, and changes rows only with --update."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from pulljobs import handlers, limit_groups
from pulljobs.errors import ConfigurationError
from pulljobs.limit_groups import limit_group
from pulljobs.models import Consumer, LimitGroup
from tests.diagnosis.commands import answer, text
from tests.handling import registry_of_its_own
from tests.sessions import contents

PLACE = "orders/invoicing"


@pytest.fixture(autouse=True)
def _of_the_test(consumer: Consumer) -> Iterator[None]:
    """Register a handler whose arguments of `@handler` differ from the consumer's row."""
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
    """Options that the code does not set stay as they are. A second update changes nothing."""
    before = Consumer.objects.get()
    result, code = answer("syncconsumers", "--update")
    assert (result["changes"], code) == (CHANGES, 0)
    row = Consumer.objects.get()
    assert (row.retry_delays, row.max_retries, row.max_waiting) == ([1.0, 2.0], 2, 3)
    assert row.changed_at > before.changed_at
    assert answer("syncconsumers", "--update")[0]["changes"] == []
    assert Consumer.objects.get().changed_at == row.changed_at
    assert text("syncconsumers", "--update").endswith("All rows match the code.\n")


def test_update_writes_the_limits_of_a_group_and_moves_its_consumers_there() -> None:
    group = limit_group("stripe-api", rate="9/m", max_in_flight=2)
    with registry_of_its_own():
        limit_group("stripe-api", rate="9/m", max_in_flight=2)
        registered(limit_group=group)
        moved = change("limit_group", None, "stripe-api")
        assert answer("syncconsumers", "--dry-run")[0]["changes"] == [moved]
        assert not LimitGroup.objects.exists()
        assert answer("syncconsumers", "--update")[0]["changes"] == [moved]
        assert Consumer.objects.get().limit_group == LimitGroup.objects.get()
        limit_groups._declared["stripe-api"] = {"rate": "5/s"}
        slower = {"limit_group": "stripe-api", "option": "rate", "was": "9/m", "is": "5/s"}
        assert answer("syncconsumers", "--dry-run")[0]["limit_groups"] == [slower]
        assert "stripe-api  rate    9/m  5/s" in text("syncconsumers", "--dry-run")
        updated = answer("syncconsumers", "--update")[0]
        assert (updated["changes"], updated["limit_groups"]) == ([], [slower])
        assert answer("syncconsumers", "--update")[0]["limit_groups"] == []
    changed = LimitGroup.objects.get()
    assert (changed.rate_per_second, changed.max_in_flight) == (5, 2)


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ({"rate": "often"}, "rate: 'often' is no rate"),
        ({"rat": "5/s"}, "It has no limit rat: use max_in_flight, rate, rate_burst, rate_window"),
        ({"rate_window": True}, "rate_window: It needs a rate"),
        ({"max_in_flight": "3"}, "max_in_flight must be of type int"),
    ],
)
def test_a_group_with_limits_that_cannot_work_is_refused(limits: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        limit_group("stripe-api", **limits)


def test_a_group_has_the_same_limits_in_all_of_the_code_and_must_exist() -> None:
    limit_group("stripe-api", rate="5/s")
    with pytest.raises(ConfigurationError, match="declare it once"):
        limit_group("stripe-api", rate="6/s")
    registered("mailing", limit_group="stripe")
    with pytest.raises(ConfigurationError, match="There is no limit group 'stripe': declare it"):
        handlers.sync_consumers()


def test_a_dry_run_lists_the_updates_and_writes_nothing() -> None:
    registered("mailing")
    before = contents()
    result, _code = answer("syncconsumers", "--update", "--dry-run")
    assert result == {
        "consumers": [PLACE, "orders/mailing"],
        "dry_run": True,
        "changes": CHANGES,
        "limit_groups": [],
    }
    assert answer("syncconsumers", "--dry-run")[0] == result
    assert "WOULD BE" in text("syncconsumers", "--dry-run")
    assert contents() == before
    answer("syncconsumers", "--update")
    assert Consumer.objects.filter(name="mailing").exists()


def test_an_update_that_contradicts_the_row_is_refused_and_names_the_consumer() -> None:
    """Code with `max_in_flight_per_key` is refused while the row has `exclusive_keys`."""
    Consumer.objects.update(exclusive_keys=True)
    before = contents()
    with registry_of_its_own():
        registered(max_in_flight_per_key=4)
        for flag in ("--update", "--dry-run"):
            with pytest.raises(CommandError, match=r"orders/invoicing: exclusive_keys: .* too, or"):
                call_command("pulljobs", "syncconsumers", flag)
    assert contents() == before
