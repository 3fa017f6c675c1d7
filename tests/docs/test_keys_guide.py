"""The code of the guide on keys and limits works."""

from collections.abc import Iterator
from types import ModuleType

import pytest

from pulljobs import handlers, operating
from pulljobs.models import Channel, Consumer
from pulljobs.pulling import Puller
from pulljobs.storage.rows import Refusal
from pulljobs.testing import drain
from tests.factories import USING, ConsumerFactory
from tests.guides import forget, modules_of
from tests.handling import registry_of_its_own

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def code() -> Iterator[dict[str, ModuleType]]:
    with registry_of_its_own():
        try:
            yield modules_of("guides/keys-and-limits.md")
        finally:
            forget("ledger")


def test_bookings_of_one_account_run_one_at_a_time_and_in_order(
    code: dict[str, ModuleType],
) -> None:
    [bookkeeper] = handlers.sync_consumers()
    send = code["ledger.sending"].send
    made = [send(account, amount) for account, amount in [("a", 1), ("a", 2), ("b", 3), ("a", 4)]]
    claim = Puller(USING, bookkeeper).claim(10)
    assert [job.id for job, _message in claim.jobs] == [made[0], made[2]]
    assert operating.stats(bookkeeper).blocked == 2
    for held in claim.jobs:
        operating.kill([held[0].id], by="test")
    assert [ran.job.result for ran in drain()] == ["a: 2", "a: 4"]


def test_a_refresh_is_queued_once(code: dict[str, ModuleType]) -> None:
    channel = Channel.objects.create(name="refresh")
    ConsumerFactory.create(channel=channel, max_queued_per_key=1)
    refreshing = code["ledger.refreshing"]
    assert [refreshing.refresh("a"), refreshing.refresh("a")] == [True, False]
    assert refreshing.refresh_all(["a", "b", "c", "b"]) == 2


def test_the_ledger_is_closed_and_opened_again(code: dict[str, ModuleType]) -> None:
    handlers.sync_consumers()
    code["ledger.sending"].send("a", 1)
    code["ledger.closing"].close_for(hours=2)
    assert Puller(USING, Consumer.objects.get()).claim(1).refusal is Refusal.PAUSED
    code["ledger.closing"].reopen()
    assert [ran.job.result for ran in drain()] == ["a: 1"]
