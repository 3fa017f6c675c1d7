"""The code of the guides on limits and on fair shares works."""

from collections.abc import Iterator
from datetime import timedelta
from types import ModuleType

import pytest

from pulljobs import handlers
from pulljobs.errors import Retry
from pulljobs.models import Consumer, LimitGroup
from pulljobs.publishing import publish
from pulljobs.pulling import Puller
from pulljobs.storage.rows import Refusal
from tests.factories import USING
from tests.guides import forget, modules_of
from tests.handling import registry_of_its_own

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def code() -> Iterator[dict[str, ModuleType]]:
    with registry_of_its_own():
        try:
            yield modules_of("guides/limits-and-fairness.md") | modules_of(
                "guides/sharing-by-key.md"
            )
        finally:
            forget("ledger")
            forget("billing")


def claimed(name: str) -> tuple[int, Refusal | None]:
    claim = Puller(USING, Consumer.objects.get(name=name)).claim(100)
    return len(claim.jobs), claim.refusal


def test_a_limited_bookkeeper_books_no_faster(code: dict[str, ModuleType]) -> None:
    handlers.sync_consumers()
    for _message in range(14):
        publish("ledger", b"")
    assert claimed("bookkeeper") == (10, Refusal.RATE_LIMITED)
    code["ledger.slowing"].limit_to("60/h", 2)
    assert claimed("bookkeeper") == (0, Refusal.RATE_LIMITED)
    code["ledger.slowing"].limit_to("")
    assert claimed("bookkeeper") == (4, None)


def test_a_report_takes_its_cost(code: dict[str, ModuleType]) -> None:
    handlers.sync_consumers()
    for _report in range(3):
        code["ledger.sending"].report(list("abcd"))
    assert claimed("bookkeeper") == (2, Refusal.RATE_LIMITED)


def test_both_consumers_share_the_limits_of_the_group(code: dict[str, ModuleType]) -> None:
    handlers.sync_consumers()
    group = LimitGroup.objects.get()
    assert (group.name, group.rate, group.max_in_flight) == ("stripe-api", "100/s", 20)
    for _message in range(30):
        publish("orders", b"")
        publish("refunds", b"")
    assert claimed("refund") == (5, Refusal.MAX_IN_FLIGHT)
    assert claimed("charge") == (15, Refusal.MAX_IN_FLIGHT)


def test_a_busy_service_throttles_the_consumer(code: dict[str, ModuleType]) -> None:
    heed = code["ledger.heeding"].heed
    heed(200, 5)
    with pytest.raises(Retry, match="the service is busy") as raised:
        heed(429, 5)
    assert (raised.value.after, raised.value.throttle) == (timedelta(seconds=5), True)
