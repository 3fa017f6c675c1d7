"""The dashboard tells how things stand, to whoever may know, in any admin site."""

import re
from datetime import timedelta
from html import unescape
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.admin import AdminSite
from django.contrib.auth.models import Permission, User
from django.db.models.functions import Now
from django.test import Client, override_settings
from django.urls import path, reverse

from pulljobs import operating
from pulljobs.admin.dashboard.page import DashboardAdmin
from pulljobs.models import Consumer, Dashboard, Node
from pulljobs.states import State
from pulljobs.storage import blockers, nodes
from pulljobs.storage.blockers import Pin
from tests.admin.conftest import browser_of
from tests.days import no_days
from tests.factories import USING, ChannelFactory, ConsumerFactory, JobFactory, published
from tests.sessions import backend, lock_timeout, query, session

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = "/admin/pulljobs/dashboard/"
elsewhere = AdminSite("elsewhere")
elsewhere.register(Dashboard, DashboardAdmin)


@pytest.fixture
def consumer(db: None) -> Consumer:
    operating.maintain()
    return ConsumerFactory.create(name="invoicing", channel=ChannelFactory.create(name="orders"))


def read(client: Client, **options: Any) -> str:
    answer = client.get(PAGE, options)
    assert answer.status_code == 200
    return answer.content.decode()


def words(page: str) -> str:
    """What is read on it, but for the admin's navigation."""
    page = page.partition('<div id="pj"')[2]
    page = re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())


def tile(page: str, title: str) -> str:
    found = re.search(rf"<dt>{title}</dt>\s*<dd>(.*?)</dd>", page, re.DOTALL)
    assert found, title
    return " ".join(re.sub(r"<[^>]*>", " ", found[1]).split())


def heard_of(report: dict[str, Any], silent: timedelta = timedelta(0)) -> Node:
    node = uuid4()
    nodes.register(USING, node, "host:1")
    nodes.beat(USING, node, report)
    Node.objects.filter(pk=node).update(heartbeat_at=Now() - silent)
    return Node.objects.get(pk=node)


@pytest.mark.owner
def test_a_new_installation_has_a_page_that_says_what_to_do(operator: Client) -> None:
    operating.maintain()
    told = words(read(operator))
    assert "Nothing needs attention." in told
    assert "There are no consumers yet." in told
    assert "No worker had a heartbeat within a day." in told
    assert "Nothing was settled in this time." in told
    assert "No job is dead." in told


def test_states_of_all_consumers_are_counted(operator: Client, consumer: Consumer) -> None:
    for state, count in ((State.INFLIGHT, 1), (State.DEAD, 2), (State.DELIVERED, 3)):
        JobFactory.create_batch(count, consumer=consumer, state=state)
    published(consumer, 4)
    published(consumer, 5, delay=timedelta(hours=1))
    page = read(operator)
    assert tile(page, "Ready").startswith("4 ")
    assert tile(page, "Due later").startswith("5 ")
    assert tile(page, "In flight").startswith("1 ")
    assert tile(page, "Dead").startswith("2 ")
    assert tile(page, "Failed").startswith("40 % of 5 settled")
    assert "orders / invoicing 4 5 0 1 2" in words(page)
    assert "2 jobs are dead." in words(page)


def test_settlements_stand_in_the_chart_and_in_its_table(
    operator: Client, consumer: Consumer
) -> None:
    JobFactory.create_batch(3, consumer=consumer, state=State.DELIVERED)
    other = ConsumerFactory.create()
    JobFactory.create(consumer=other, state=State.DEAD)
    assert sum(map(int, re.findall(r": (\d+) delivered, \d+ dead", read(operator)))) >= 3
    page = read(operator, consumer=other.pk)
    of_other = re.findall(r"<title>[^<]*: (\d+) delivered, (\d+) dead", page)
    assert {one for one in of_other if one != ("0", "0")} == {("0", "1")}


def test_dead_jobs_are_told_by_their_error(operator: Client, consumer: Consumer) -> None:
    JobFactory.create_batch(2, consumer=consumer, state=State.DEAD)
    query("UPDATE pulljobs_job SET error = 'no order ' || id || E'\\ntraceback' WHERE reason <> ''")
    JobFactory.create(consumer=consumer, state=State.DEAD)
    told = words(read(operator))
    assert re.search(r"Dead jobs by error 2 no order \d+ orders / invoicing", told)
    assert "1 bad orders / invoicing" in told
    assert "traceback" not in told


def test_workers_are_shown_with_what_they_do(operator: Client, consumer: Consumer) -> None:
    job = JobFactory.create(consumer=consumer, state=State.INFLIGHT)
    said = {"job": str(job.id), "consumer": "orders/invoicing", "slot": 0, "seconds": 61.0}
    heard_of(
        {
            "loops": {"reaper": {"alive": False}},
            "running": [{**said, "ended": False}],
            "circuits": {"orders/invoicing": {"state": "open", "level": 2, "seconds": 3}},
            "serves": ["orders/invoicing"],
            "done": 12,
        }
    )
    page = read(operator)
    assert reverse("admin:pulljobs_job_change", args=[job.id]) in page
    told = words(page)
    assert re.search(r"host:1 its reaper is dead .*1 min [0-9]+ s orders/invoicing", told)
    assert "orders / invoicing held back, level 2" in told
    assert "Worker host:1: its reaper is dead." in told


def test_a_worker_that_fell_silent_is_bad_news(operator: Client, consumer: Consumer) -> None:
    published(consumer)
    heard_of({"serves": ["orders/invoicing"]}, silent=timedelta(minutes=5))
    told = words(read(operator))
    assert "Worker host:1 has had no heartbeat for 5 min" in told
    assert "Jobs of orders/invoicing wait and no process serves it." in told


def test_a_pause_is_told_and_is_nobodys_fault(operator: Client, consumer: Consumer) -> None:
    published(consumer)
    Consumer.objects.update(paused_until=Now() + timedelta(hours=1))
    told = words(read(operator))
    assert "orders/invoicing is paused until" in told
    assert "not served" not in told


@pytest.mark.owner
def test_the_oldest_snapshot_is_named_with_its_pid(operator: Client, consumer: Consumer) -> None:
    with session() as other:
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT 'mine' FROM pulljobs_job")
        told = words(read(operator))
        assert f"pid {backend(other)} holds back cleanup session · idle in transaction" in told


def test_a_slot_is_not_hidden_by_everyday_transactions(
    operator: Client, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no age, and keeps dead rows however young they all are."""
    pins = [Pin("session", str(number), 2.0 + number, "active") for number in range(9)]
    pins.append(Pin("replication slot", "standby_2", None, "inactive"))
    monkeypatch.setattr(blockers, "pins", lambda using, age: pins)
    told = words(read(operator))
    assert "The replication slot standby_2 keeps dead rows from being cleaned" in told
    assert "standby_2 holds back cleanup" in told


def test_rows_without_a_partition_are_bad_news(operator: Client) -> None:
    """Nobody ran the upkeep: there is no partition at all."""
    for [name] in query("SELECT relname FROM pg_class WHERE relname ~ '^pulljobs_.*_[0-9]{8}$'"):
        query(f"DROP TABLE IF EXISTS {name} CASCADE")
    published(ConsumerFactory.create())
    told = words(read(operator))
    assert "pulljobs_message_default holds 1 rows: their day had no partition." in told
    assert "pulljobs_archived_job has no partition for" in told
    operating.maintain()


@pytest.mark.owner
def test_rows_without_a_partition_are_at_least_so_many(
    operator: Client, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blockers, "COUNT_CAP", 2)
    with no_days():
        published(consumer, 3)
        told = words(read(operator))
    assert "pulljobs_message_default holds 2+ rows: their day had no partition." in told
    assert "In default partitions pulljobs_message: 2+" in told


def test_what_the_database_does_not_tell_in_time_is_left_out(
    operator: Client, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever holds one part up, the others are shown."""
    monkeypatch.setattr("pulljobs.admin.dashboard.contents.PATIENCE", timedelta(seconds=3))
    published(consumer, 3)
    with session() as other:
        other.execute("LOCK TABLE pulljobs_node IN ACCESS EXCLUSIVE MODE")
        page = read(operator)
    assert "The database did not answer in time: workers" in words(page)
    assert "No worker had a heartbeat" not in page
    assert "not served" not in page
    assert tile(page, "Ready").startswith("3 ")
    assert tile(page, "In flight") == "0 workers not read in time"


def test_a_role_s_lock_timeout_costs_a_part_alone(operator: Client, consumer: Consumer) -> None:
    published(consumer, 3)
    with session() as other, lock_timeout("50ms"):
        other.execute("LOCK TABLE pulljobs_node IN ACCESS EXCLUSIVE MODE")
        page = read(operator)
    assert "The database did not answer in time: workers" in words(page)
    assert tile(page, "Ready").startswith("3 ")


def test_of_what_was_not_read_nothing_good_is_said(operator: Client, consumer: Consumer) -> None:
    """Nor to those who hear the page."""
    with session() as other, lock_timeout("50ms"):
        other.execute("LOCK TABLE pulljobs_node IN ACCESS EXCLUSIVE MODE")
        told = words(read(operator))
    assert "Some parts were not read in time." in told
    assert "Nothing needs attention." not in told


def test_a_table_that_lacks_a_migration_costs_its_part_alone(
    operator: Client, consumer: Consumer
) -> None:
    """As of a release that begins before it is migrated."""
    published(consumer, 3)
    query("CREATE TEMP TABLE pulljobs_node (id uuid)")  # comes before the other
    try:
        page = read(operator)
    finally:
        query("DROP TABLE pg_temp.pulljobs_node")
    told = words(page)
    assert "The database did not answer: workers. The database lacks a migration" in told
    assert "run manage.py migrate" in told
    assert tile(page, "Ready").startswith("3 ")


def test_who_may_not_see_it_does_not(db: None) -> None:
    user = User.objects.create_user("rita", is_staff=True)
    rita = browser_of(user)
    assert rita.get(PAGE).status_code == 403
    assert PAGE not in rita.get("/admin/").content.decode()
    user.user_permissions.add(Permission.objects.get(codename="view_dashboard"))
    assert rita.get(PAGE).status_code == 200
    assert PAGE in rita.get("/admin/").content.decode()
    assert Client().get(PAGE).status_code == 302


def test_links_lead_only_where_one_may_go(consumer: Consumer) -> None:
    JobFactory.create(consumer=consumer, state=State.DEAD)
    user = User.objects.create_user("rita", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_dashboard"))
    page = read(browser_of(user))
    assert reverse("admin:pulljobs_job_changelist") not in page
    assert reverse("admin:pulljobs_consumer_change", args=[consumer.pk]) not in page


@override_settings(ROOT_URLCONF="tests.dashboard.test_page")
def test_it_works_in_a_site_of_ones_own(operator: Client, consumer: Consumer) -> None:
    """Which has no other page of pulljobs."""
    JobFactory.create(consumer=consumer, state=State.DEAD)
    index = operator.get("/elsewhere/").content.decode()
    assert "/elsewhere/pulljobs/dashboard/" in index
    answer = operator.get("/elsewhere/pulljobs/dashboard/")
    assert answer.status_code == 200
    assert 'href="/admin/' not in answer.content.decode()
    assert tile(answer.content.decode(), "Dead").startswith("1 ")


@pytest.mark.parametrize("chosen", ["hour", "day", "week", "month", "nonsense"])
def test_nothing_in_the_page_needs_a_lax_csp(
    operator: Client, consumer: Consumer, chosen: str
) -> None:
    JobFactory.create(consumer=consumer, state=State.DEAD)
    page = read(operator, range=chosen, consumer="nobody")
    assert not re.findall(r"<style|\sstyle=|\son\w+=|javascript:", page)
    assert not re.findall(r"<script(?![^>]*\ssrc=)", page)


def test_more_consumers_need_no_more_queries(
    operator: Client, consumer: Consumer, django_assert_max_num_queries: Any
) -> None:
    with django_assert_max_num_queries(60) as few:
        read(operator)
    ConsumerFactory.create_batch(5)
    with django_assert_max_num_queries(len(few)):
        read(operator)


urlpatterns = [path("elsewhere/", elsewhere.urls)]
