"""Clients that pull over HTTP and name themselves are recorded, within bounds and without waits."""

from datetime import timedelta

import pytest
from django.db.models.functions import Now
from pytest_django import Settings

from pulljobs import operating
from pulljobs.api.leases import clients as noted
from pulljobs.api.leases.clients import ClientNotes
from pulljobs.client.connecting import USER_AGENT, Connection
from pulljobs.models import Consumer, HttpClient
from pulljobs.storage import clients
from pulljobs.storage.clients import MOST, ClientNote
from tests.api.leases.serving import Puller
from tests.factories import USING, ConsumerFactory
from tests.sessions import at_once, blocked_by, query, session, wait_until

NAMED = {"HTTP_X_WORKER_ID": "w-1", "HTTP_X_WORKER_HOST": "shop-3", "REMOTE_ADDR": "10.0.0.9"}


@pytest.fixture
def beating(puller: Puller, settings: Settings) -> Puller:
    """Return an HTTP client of a server that often writes heartbeats, and notes its clients."""
    settings.PULLJOBS = {"HEARTBEAT_INTERVAL": timedelta(milliseconds=50)}
    return puller


def note(consumer: Consumer, name: str, host: str = "shop-3") -> ClientNote:
    return ClientNote(consumer.pk, name, host, "10.0.0.9", USER_AGENT)


def test_a_client_of_ours_is_noted_with_host_version_and_time(beating: Puller) -> None:
    identity = Connection(worker_id="w-1").identity()
    beating.tokens |= identity
    beating.pull()
    wait_until(HttpClient.objects.exists)
    client = HttpClient.objects.get()
    assert client.consumer_id == beating.subscription.consumer.pk
    assert (client.name, client.host) == ("w-1", identity["X-Worker-Host"])
    assert (client.address, client.agent) == ("127.0.0.1", USER_AGENT)
    for verb in ("ack", "renew"):
        seen_at = HttpClient.objects.get().seen_at
        beating.post(verb)
        wait_until(HttpClient.objects.filter(seen_at__gt=seen_at).exists)
    assert HttpClient.objects.get().first_seen_at == client.first_seen_at


def test_a_client_without_a_name_writes_nothing(beating: Puller) -> None:
    beating.pull()
    beating.tokens |= {"X-Worker-Id": "w-2"}
    beating.pull()
    wait_until(HttpClient.objects.exists)
    assert list(HttpClient.objects.values_list("name", flat=True)) == ["w-2"]


def test_a_client_with_a_wrong_token_is_not_noted(beating: Puller) -> None:
    refused = beating.tokens | {"X-Worker-Id": "w-1"}
    right, beating.tokens = beating.tokens, refused | {"X-Broker-Consumer-Token": "wrong"}
    assert beating.post("pull").status_code == 403
    beating.tokens = right | {"X-Worker-Id": "w-2"}
    beating.pull()
    wait_until(HttpClient.objects.exists)
    assert HttpClient.objects.get().name == "w-2"


def test_a_pull_does_not_wait_for_the_row_of_its_client(beating: Puller) -> None:
    beating.tokens |= {"X-Worker-Id": "w-1"}
    beating.pull()
    wait_until(HttpClient.objects.exists)
    with session() as other:
        other.execute("SELECT FROM pulljobs_http_client FOR UPDATE")
        beating.pull()
        wait_until(lambda: blocked_by(other))
        beating.pull()
    seen_at = HttpClient.objects.get().seen_at
    beating.pull()
    wait_until(lambda: HttpClient.objects.get().seen_at > seen_at)


def test_a_client_is_noted_once_between_two_heartbeats() -> None:
    notes = ClientNotes()
    for consumer_id in (1, 2, 1, 1, 2):
        notes.note(consumer_id, NAMED)
    assert sorted((note.consumer_id, note.name) for note in notes.take()) == [
        (1, "w-1"),
        (2, "w-1"),
    ]
    assert notes.take() == []
    notes.note(1, NAMED)
    assert [note.host for note in notes.take()] == ["shop-3"]


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "x" * 65, "<b>", "a'b", "é", "a\x00", "a\n", "a/b", "\u202e"]
)
def test_an_invalid_name_is_not_noted(name: str) -> None:
    notes = ClientNotes()
    notes.note(1, NAMED | {"HTTP_X_WORKER_ID": name})
    assert notes.take() == []


def test_other_headers_are_cut_to_printable_ascii() -> None:
    sent = {"HTTP_X_WORKER_HOST": "a\x00b\x1bé" + "c" * 999, "HTTP_USER_AGENT": "d" * 999}
    notes = ClientNotes()
    notes.note(1, {"HTTP_X_WORKER_ID": "w-1", **sent})
    [note] = notes.take()
    assert note.host == "ab" + "c" * 250
    assert (note.address, note.agent) == ("", "d" * 200)


def test_memory_is_bounded_by_consumer_and_by_process() -> None:
    notes = ClientNotes()
    for number in range(3_000):
        notes.note(1, NAMED | {"HTTP_X_WORKER_ID": f"w-{number}"})
    assert len(notes.take()) == MOST
    for number in range(3_000):
        notes.note(number, NAMED)
    assert len(notes.take()) == noted.MOST_OF_PROCESS


@pytest.mark.django_db
def test_the_newest_clients_of_a_consumer_stay() -> None:
    """A consumer keeps a bounded number of clients. Those of other consumers do not count."""
    busy, quiet = ConsumerFactory.create(), ConsumerFactory.create()
    clients.record(USING, [note(quiet, "w-1")])
    for start in (0, 60, 120):
        clients.record(USING, [note(busy, f"w-{n:03}") for n in range(start, start + 60)])
    names = HttpClient.objects.filter(consumer=busy).order_by("name").values_list("name", flat=True)
    assert len(names) == MOST
    assert set(names) >= {f"w-{n:03}" for n in range(120, 180)}
    assert HttpClient.objects.filter(consumer=quiet).count() == 1


@pytest.mark.django_db
def test_clients_that_were_not_seen_for_a_day_are_deleted() -> None:
    """Clients unseen for a day are deleted by maintenance or by the consumer's next record."""
    first, second = ConsumerFactory.create(), ConsumerFactory.create()
    clients.record(USING, [note(first, "old"), note(second, "old")])
    HttpClient.objects.update(seen_at=Now() - clients.KEPT - timedelta(seconds=1))
    clients.record(USING, [note(first, "new")])
    left = HttpClient.objects.filter(consumer__in=[first, second]).values_list(
        "consumer_id", "name"
    )
    assert sorted(left) == sorted([(first.pk, "new"), (second.pk, "old")])
    operating.maintain()
    assert list(left.all()) == [(first.pk, "new")]


@pytest.mark.django_db(transaction=True)
def test_processes_that_note_the_same_clients_at_once_do_not_deadlock() -> None:
    consumer = ConsumerFactory.create()
    every = [note(consumer, f"w-{n}") for n in range(80)]

    def record_often(number: int) -> None:
        for _turn in range(10):
            clients.record(USING, every[:: 1 - 2 * number])

    at_once(2, record_often)
    assert query("SELECT count(*) FROM pulljobs_http_client") == [(80,)]
