"""The admin shows who pulls over HTTP, from where, with what version and how long ago."""

import html

import pytest
from django.contrib.auth.models import Permission, User
from django.db.models.functions import Now
from django.test import Client

from pulljobs.models import Consumer, HttpClient
from pulljobs.storage import clients
from pulljobs.storage.clients import ClientNote
from tests.admin.conftest import browser_of
from tests.admin.pages import listing, page, read_page, rows
from tests.factories import USING, ConsumerFactory

AGENT = "pulljobs/0.1.0 python/3.12.1 <b>"


@pytest.fixture
def client_of(consumer: Consumer) -> HttpClient:
    other = ConsumerFactory.create()
    notes = [ClientNote(each.pk, "w-1", "shop-3", "10.0.0.9", AGENT) for each in (consumer, other)]
    clients.record(USING, notes)
    return HttpClient.objects.get(consumer=consumer)


def test_the_list_shows_host_address_version_and_age(reader: Client, client_of: HttpClient) -> None:
    text = read_page(reader, listing("httpclient"), consumer=client_of.consumer_id)
    [row] = rows(text)
    for shown in ("w-1", "files / census", "shop-3", "10.0.0.9", "s ago"):
        assert shown in row
    assert html.escape(AGENT) in text
    assert AGENT not in text
    assert len(rows(read_page(reader, listing("httpclient"), q="shop"))) == 2
    assert not rows(read_page(reader, listing("httpclient"), q="nowhere"))
    assert not rows(read_page(reader, listing("httpclient"), consumer="x"))


def test_the_page_of_a_consumer_has_its_clients(reader: Client, client_of: HttpClient) -> None:
    text = read_page(reader, page("consumer", client_of.consumer_id))
    assert page("httpclient", client_of.pk) in text
    assert html.escape(AGENT) in text
    assert AGENT not in text
    assert "shop-3" in read_page(reader, page("httpclient", client_of.pk))


def test_clients_are_shown_to_users_with_the_permission(client_of: HttpClient) -> None:
    user = User.objects.create_user("sam", is_staff=True)
    names = ["view_consumer", "view_node"]
    user.user_permissions.set(Permission.objects.filter(codename__in=names))
    stranger = browser_of(user)
    assert stranger.get(listing("httpclient")).status_code == 403
    assert stranger.get(page("httpclient", client_of.pk)).status_code == 403
    assert "w-1" not in read_page(stranger, page("consumer", client_of.consumer_id))
    assert listing("httpclient") not in read_page(stranger, listing("node"))


def test_the_list_of_nodes_leads_to_the_clients(reader: Client, client_of: HttpClient) -> None:
    assert f'href="{listing("httpclient")}"' in read_page(reader, listing("node"))


def test_clients_cannot_be_changed(operator: Client, client_of: HttpClient) -> None:
    HttpClient.objects.update(seen_at=Now())
    assert operator.post(page("httpclient", client_of.pk), {"name": "x"}).status_code == 403
    assert 'type="submit" value="Save"' not in read_page(operator, page("httpclient", client_of.pk))
