"""Users of the admin read why the database refuses a change, or that it does not answer."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from unittest.mock import Mock

import pytest
from django.db import DatabaseError, IntegrityError, OperationalError, connections
from django.db.models.functions import Now
from django.test import Client
from django.urls import reverse
from psycopg.errors import LockNotAvailable

from pulljobs import schedules
from pulljobs.admin.operations import OPERATIONS
from pulljobs.models import AuditEntry, Consumer, LimitGroup
from pulljobs.schedules.models import Schedule
from pulljobs.states import Event, State
from tests.admin.pages import listing, page, post_form, preview_token, read_page
from tests.factories import USING, JobFactory

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.own_session]
REFUSAL = "The database refused a change. The session may only read"
ALL = "/admin/pulljobs/job/all/kill/?state=QUEUED"


@contextmanager
def read_only() -> Iterator[None]:
    with connections[USING].cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
        try:
            yield
        finally:
            cursor.execute("RESET default_transaction_read_only")


def refused(client: Client, url: str, form: dict[str, object], before: str = "") -> str:
    """Post a form that the database refuses. Return the URL of the page with the message."""
    answer = client.post(url, form, headers={"referer": before} if before else {}, follow=True)
    assert answer.status_code == 200, url
    [message] = answer.context["messages"]
    assert str(message).startswith(REFUSAL), (url, message)
    assert str(message).endswith("of the server, database and role."), message
    return str(answer.redirect_chain[0][0])


@pytest.fixture
def forms(operator: Client, consumer: Consumer) -> dict[str, dict[str, object]]:
    """Return forms of all kinds of changes by the URLs to which they are sent."""
    job = JobFactory.create(consumer=consumer, state=State.DEAD).id
    JobFactory.create(consumer=consumer)
    group = LimitGroup.objects.create(name="shared", max_in_flight=100)
    schedule = schedules.create("nightly", "files", cron="0 3 * * *")
    Consumer.objects.update(fair_by_key=True)
    Schedule.objects.update(paused_at=Now(), paused_until=Now() + timedelta(hours=1))
    path = f"/admin/pulljobs/consumer/{consumer.pk}"
    its = f"/admin/pulljobs_schedules/schedule/{schedule.pk}"
    return {
        page("job", job): {"_event": OPERATIONS[Event.REDRIVE].slug},
        listing("job"): {"action": "redrive", "_selected_action": [job], "index": 0},
        ALL: {"preview_token": preview_token(operator, ALL)},
        f"{path}/pause/": {"span": "1h"},
        f"{path}/resume/": {},
        f"{path}/rotate/": {},
        f"{path}/weights/": {"key": "a", "weight": 3},
        f"{path}/delete/": {"post": "yes"},
        f"{its}/fire/": {},
        f"{its}/pause/": {"span": "1h"},
        f"{its}/resume/": {},
        f"{its}/delete/": {"post": "yes"},
        page("limitgroup", group.pk): {"name": "shared", "max_in_flight": 3},
        reverse("admin:pulljobs_channel_add"): {"name": "x", "dedupe_window": "1 00:00:00"},
    }


def test_a_change_is_refused_with_advice(
    operator: Client, forms: dict[str, dict[str, object]]
) -> None:
    with read_only():
        for url, form in forms.items():
            assert refused(operator, url, form) == "/admin/", url
    assert not AuditEntry.objects.exists()


def test_the_message_is_on_the_page_of_the_form(
    operator: Client, forms: dict[str, dict[str, object]], consumer: Consumer
) -> None:
    shown = page("consumer", consumer.pk)
    its_own, other = f"http://testserver{shown}", "http://elsewhere.example/"
    resume = f"/admin/pulljobs/consumer/{consumer.pk}/resume/"
    with read_only():
        assert refused(operator, resume, forms[resume], its_own) == its_own
        assert refused(operator, resume, forms[resume], other) == "/admin/"
        assert "census" in read_page(operator, shown)


@pytest.fixture
def pause(
    operator: Client, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> Callable[[DatabaseError], list[str]]:
    """Return a function that lets a pause fail with an error, and returns the page's messages."""

    def pause(error: DatabaseError) -> list[str]:
        monkeypatch.setattr("pulljobs.operating.pause", Mock(side_effect=error))
        return post_form(operator, f"/admin/pulljobs/consumer/{consumer.pk}/pause/", {"span": "1h"})

    return pause


def test_a_wait_that_is_too_long_is_reported(pause: Callable[[DatabaseError], list[str]]) -> None:
    error = OperationalError("canceling statement due to lock timeout")
    error.__cause__ = LockNotAvailable()
    assert pause(error) == [
        "The database refused a change. A statement met its time limit (canceling statement due to "
        "lock timeout): try again."
    ]


def test_another_error_stays_an_error(pause: Callable[[DatabaseError], list[str]]) -> None:
    with pytest.raises(IntegrityError, match="as it happens"):
        pause(IntegrityError("as it happens"))


@pytest.mark.parametrize("url", ["dashboard/", "job/", "consumer/"])
def test_a_database_that_does_not_answer_is_named(
    url: str, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If only the database of the users answers, the page is a 503 that names that of the jobs."""
    down = OperationalError("connection to server failed:\n<b>")
    monkeypatch.setattr("pulljobs.storage.nodes.clock", Mock(side_effect=down))
    monkeypatch.setattr("pulljobs.storage.all_jobs.window", Mock(side_effect=down))
    answer = operator.get(f"/admin/pulljobs/{url}")
    assert answer.status_code == 503
    text = "The database of the jobs did not answer: connection to server failed:</p>"
    assert text in answer.content.decode()
