"""The list of scheduled messages shows what is to be published, and hides payloads as others do."""

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.test.utils import CaptureQueriesContext

from pulljobs.models import Consumer, ScheduledMessage
from pulljobs.storage import windows
from tests.admin.conftest import browser_of
from tests.admin.pages import listing, page, read_page, rows


def scheduled(consumer: Consumer, name: str, *, published: bool = False) -> ScheduledMessage:
    return ScheduledMessage.objects.create(
        channel=consumer.channel,
        client_message_id=name,
        content_type="text/html",
        payload=b"<b>s3cr3t</b>",
        headers={"items": "m4sked"},
        key="<k>",
        dispatch_at=Now() + timedelta(hours=3),
        dispatched_at=Now() if published else None,
    )


def test_the_list_shows_what_is_to_be_published(operator: Client, consumer: Consumer) -> None:
    scheduled(consumer, "waits")
    scheduled(consumer, "was", published=True)
    text = read_page(operator, listing("scheduledmessage"))
    done, waiting = rows(text)
    assert re.search(r"waits <b>s3cr3t</b> key <k> waits until .* files .* in 3 h", waiting)
    assert "published at" in done
    assert "<b>s3cr3t" not in text
    for state, name in (("waiting", "waits"), ("published", "was")):
        [row] = rows(read_page(operator, listing("scheduledmessage"), state=state))
        assert row.split()[0] == name
    assert len(rows(read_page(operator, listing("scheduledmessage"), q=" was "))) == 1
    assert not rows(read_page(operator, listing("scheduledmessage"), q="was", state="waiting"))
    assert not rows(read_page(operator, listing("scheduledmessage"), q="wa"))
    channel = {"channel": consumer.channel_id + 1}
    assert not rows(read_page(operator, listing("scheduledmessage"), **channel))


def test_a_scheduled_message_needs_the_permission_to_see_payloads(consumer: Consumer) -> None:
    message = scheduled(consumer, "order 5")
    for more, is_shown in ([], False), (["view_message"], True):
        user = User.objects.create_user(f"sam{is_shown}", is_staff=True)
        names = ["view_scheduledmessage", *more]
        user.user_permissions.set(Permission.objects.filter(codename__in=names))
        with CaptureQueriesContext(connection) as captured:
            texts = [
                read_page(browser_of(user), url)
                for url in (listing("scheduledmessage"), page("scheduledmessage", message.pk))
            ]
        assert ["s3cr3t" in text for text in texts] == [is_shown, is_shown]
        assert "<b>s3cr3t" not in "".join(texts)
        assert ("m4sked" in texts[1]) == is_shown
        assert any("substring" in each["sql"].lower() for each in captured) == is_shown


def test_scheduled_messages_are_read_a_window_at_a_time(
    operator: Client, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page looks through a bounded number of rows, and its link continues after them."""
    last = scheduled(consumer, "waits")
    ScheduledMessage.objects.bulk_create(
        ScheduledMessage(
            channel=consumer.channel,
            client_message_id=f"done {number}",
            content_type="",
            payload=b"",
            dispatch_at=Now(),
            dispatched_at=Now(),
        )
        for number in range(windows.SCANNED)
    )
    query, seen, pages = "?state=waiting", [], 0
    while query:
        text = read_page(operator, listing("scheduledmessage") + query)
        seen += [row.split()[0] for row in rows(text)]
        link = re.search(r'<a href="(\?[^"]*)">Look further back', text)
        query, pages = (link[1].replace("&amp;", "&") if link else ""), pages + 1
    assert (seen, pages) == ([last.client_message_id], 2)
