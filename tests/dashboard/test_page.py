"""The dashboard shows the current state to users with its permission, in any admin site."""

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
from pulljobs.models import Consumer, Dashboard, LimitGroup, Node
from pulljobs.pulling import Puller
from pulljobs.states import State
from pulljobs.storage import nodes, partitions, snapshots, throttles
from pulljobs.storage.snapshots import OldSnapshot
from tests.admin.conftest import browser_of
from tests.circuits import CAUSE, open_circuit, open_circuit_by_task
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


def read_dashboard(client: Client, **options: Any) -> str:
    answer = client.get(PAGE, options)
    assert answer.status_code == 200
    return answer.content.decode()


def visible_text(page: str) -> str:
    """Return the visible text of the page without charts and without the admin's navigation."""
    page = page.partition('<div id="pj"')[2]
    page = re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())


def tile(page: str, title: str) -> str:
    """Return the text of the tile with this title."""
    match = re.search(rf"<dt>{title}</dt>\s*<dd>(.*?)</dd>", page, re.DOTALL)
    assert match, title
    return " ".join(re.sub(r"<[^>]*>", " ", match[1]).split())


def settled_counts(page: str) -> set[tuple[str, str]]:
    """Return the counts of delivered and dead jobs in the chart's tooltips, except zeros."""
    counts = re.findall(r"<title>[^<]*: (\d+) delivered, (\d+) dead", page)
    return {count for count in counts if count != ("0", "0")}


def report_heartbeat(report: dict[str, Any], silent: timedelta = timedelta(0)) -> Node:
    """Register a node that sent this report with its last heartbeat, `silent` ago."""
    node = uuid4()
    nodes.register(USING, node, "host:1")
    nodes.beat(USING, node, report)
    Node.objects.filter(pk=node).update(heartbeat_at=Now() - silent)
    return Node.objects.get(pk=node)


@pytest.mark.owner
def test_the_page_of_a_new_installation_says_that_there_is_nothing_yet(operator: Client) -> None:
    operating.maintain()
    text = visible_text(read_dashboard(operator))
    assert "Nothing needs attention." in text
    assert "There are no consumers yet." in text
    assert "No worker had a heartbeat within a day." in text
    assert "Nothing was settled in this time." in text
    assert "No job is dead." in text


def test_states_of_all_consumers_are_counted(operator: Client, consumer: Consumer) -> None:
    for state, count in ((State.INFLIGHT, 1), (State.DEAD, 2), (State.DELIVERED, 3)):
        JobFactory.create_batch(count, consumer=consumer, state=state)
    published(consumer, 4)
    published(consumer, 5, delay=timedelta(hours=1))
    page = read_dashboard(operator)
    assert tile(page, "Ready").startswith("4 ")
    assert tile(page, "Due later").startswith("5 ")
    assert tile(page, "In flight").startswith("1 ")
    assert tile(page, "Dead").startswith("2 ")
    assert tile(page, "Failed").startswith("40 % 2 of 5 settled")
    assert "orders / invoicing 4 5 0 1 2" in visible_text(page)
    assert "2 jobs are dead." in visible_text(page)


def test_deaths_are_counted_beyond_the_cap_of_other_states(
    operator: Client, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulljobs.storage.backlog.CAPS", (3,))
    JobFactory.create_batch(5, consumer=consumer, state=State.DEAD)
    published(consumer, 5)
    page = read_dashboard(operator)
    assert tile(page, "Dead").startswith("5 ")
    assert tile(page, "Ready").startswith("3+ ")


def test_the_chart_counts_all_settlements_or_those_of_the_chosen_consumer(
    operator: Client, consumer: Consumer
) -> None:
    JobFactory.create_batch(3, consumer=consumer, state=State.DELIVERED)
    other = ConsumerFactory.create()
    JobFactory.create(consumer=other, state=State.DEAD)
    assert sum(map(int, re.findall(r": (\d+) delivered, \d+ dead", read_dashboard(operator)))) >= 3
    page = read_dashboard(operator, consumer=other.pk)
    assert settled_counts(page) == {("0", "1")}


def test_dead_jobs_are_grouped_by_their_error(operator: Client, consumer: Consumer) -> None:
    JobFactory.create_batch(2, consumer=consumer, state=State.DEAD)
    query("UPDATE pulljobs_job SET error = 'no order ' || id || E'\\ntraceback' WHERE reason <> ''")
    JobFactory.create(consumer=consumer, state=State.DEAD)
    text = visible_text(read_dashboard(operator))
    assert re.search(r"Dead jobs by error 2 no order \d+ orders / invoicing", text)
    assert "1 bad orders / invoicing" in text
    assert "traceback" not in text


def test_workers_are_shown_with_their_loops_jobs_and_circuits(
    operator: Client, consumer: Consumer
) -> None:
    job = JobFactory.create(consumer=consumer, state=State.INFLIGHT)
    running = {"job": str(job.id), "consumer": "orders/invoicing", "slot": 0, "seconds": 61.0}
    report_heartbeat(
        {
            "loops": {"reaper": {"alive": False}},
            "running": [{**running, "ended": False}],
            "circuits": {"orders/invoicing": {"state": "open", "level": 2, "seconds": 3}},
            "serves": ["orders/invoicing"],
            "done": 12,
        }
    )
    page = read_dashboard(operator)
    assert reverse("admin:pulljobs_job_change", args=[job.id]) in page
    text = visible_text(page)
    assert re.search(r"host:1 its reaper is dead .*1 min [0-9]+ s orders/invoicing", text)
    assert "orders / invoicing held back, level 2" in text
    assert "Worker host:1: its reaper is dead." in text


def test_a_consumer_that_is_held_back_is_shown_with_the_cause(
    operator: Client, consumer: Consumer
) -> None:
    report_heartbeat(
        {"circuits": {"orders/invoicing": open_circuit()}, "serves": ["orders/invoicing"]}
    )
    shown = visible_text(read_dashboard(operator))
    assert f"orders/invoicing is held back: {CAUSE}." in shown
    assert f"orders/invoicing, level 2: {CAUSE}; one is tried in 3 s." in shown


def test_a_held_back_task_is_not_shown_as_its_whole_consumer(
    operator: Client, consumer: Consumer
) -> None:
    circuits = {"orders/invoicing": open_circuit_by_task("shop.tasks.mail", "shop.tasks.index")}
    report_heartbeat({"circuits": circuits, "serves": ["orders/invoicing"]})
    shown = visible_text(read_dashboard(operator))
    assert "orders / invoicing 2 tasks held back" in shown
    assert f"task shop.tasks.mail of orders/invoicing is held back: {CAUSE}." in shown
    assert "invoicing held back, level" not in shown


def test_a_silent_worker_is_a_problem(operator: Client, consumer: Consumer) -> None:
    published(consumer)
    report_heartbeat({"serves": ["orders/invoicing"]}, silent=timedelta(minutes=5))
    text = visible_text(read_dashboard(operator))
    assert "Worker host:1 has had no heartbeat for 5 min" in text
    assert "Jobs of orders/invoicing wait and no process serves it." in text
    assert "Findings: 2. Those that block jobs or maintenance: 2." in text


def test_a_paused_consumer_is_paused_and_not_unserved(operator: Client, consumer: Consumer) -> None:
    published(consumer)
    Consumer.objects.update(paused_until=Now() + timedelta(hours=1))
    text = visible_text(read_dashboard(operator))
    assert "orders/invoicing is paused until" in text
    assert "not served" not in text


@pytest.mark.owner
def test_the_oldest_snapshot_is_named_with_its_pid(operator: Client, consumer: Consumer) -> None:
    with session() as other:
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT 'mine' FROM pulljobs_job")
        text = visible_text(read_dashboard(operator))
        assert f"pid {backend(other)} holds back cleanup session · idle in transaction" in text


def test_a_replication_slot_is_not_hidden_by_young_transactions(
    operator: Client, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replication slot that keeps dead rows is shown, although it has no age to be sorted by."""
    pins = [OldSnapshot("session", str(number), 2.0 + number, "active") for number in range(9)]
    pins.append(OldSnapshot("replication slot", "standby_2", None, "inactive"))
    monkeypatch.setattr(snapshots, "find_old", lambda using, age: pins)
    text = visible_text(read_dashboard(operator))
    assert "The replication slot standby_2 keeps dead rows from being cleaned" in text
    assert "standby_2 holds back cleanup" in text


def test_rows_in_a_default_partition_are_a_problem(operator: Client) -> None:
    """The page reports rows in a default partition, and days for which a table has no partition."""
    for [name] in query("SELECT relname FROM pg_class WHERE relname ~ '^pulljobs_.*_[0-9]{8}$'"):
        query(f"DROP TABLE IF EXISTS {name} CASCADE")
    published(ConsumerFactory.create())
    text = visible_text(read_dashboard(operator))
    assert "pulljobs_message_default holds 1 rows: their day had no partition." in text
    assert "pulljobs_archived_job has no partition for" in text
    operating.maintain()


@pytest.mark.owner
def test_a_capped_count_of_rows_in_a_default_partition_is_marked(
    operator: Client, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "COUNT_CAP", 2)
    with no_days():
        published(consumer, 3)
        text = visible_text(read_dashboard(operator))
    assert "pulljobs_message_default holds 2+ rows: their day had no partition." in text
    assert "In default partitions pulljobs_message: 2+" in text


def test_parts_that_are_not_read_in_time_are_left_out(
    operator: Client, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a lock holds up the table of nodes, the page has all other figures."""
    monkeypatch.setattr("pulljobs.admin.dashboard.contents.PATIENCE", timedelta(seconds=3))
    published(consumer, 3)
    with session() as other:
        other.execute("LOCK TABLE pulljobs_node IN ACCESS EXCLUSIVE MODE")
        page = read_dashboard(operator)
    assert "The database did not answer in time: workers" in visible_text(page)
    assert "No worker had a heartbeat" not in page
    assert "not served" not in page
    assert tile(page, "Ready").startswith("3 ")
    assert tile(page, "In flight") == "0 workers not read in time"


def test_a_lock_timeout_of_the_role_costs_only_one_part(
    operator: Client, consumer: Consumer
) -> None:
    published(consumer, 3)
    with session() as other, lock_timeout("50ms"):
        other.execute("LOCK TABLE pulljobs_node IN ACCESS EXCLUSIVE MODE")
        page = read_dashboard(operator)
    assert "The database did not answer in time: workers" in visible_text(page)
    assert tile(page, "Ready").startswith("3 ")


def test_parts_that_were_not_read_are_not_reported_as_healthy(
    operator: Client, consumer: Consumer
) -> None:
    """The page reports that figures are missing, and not that nothing needs attention."""
    with session() as other, lock_timeout("50ms"):
        other.execute("LOCK TABLE pulljobs_node IN ACCESS EXCLUSIVE MODE")
        text = visible_text(read_dashboard(operator))
    assert "Some parts were not read in time." in text
    assert "Nothing needs attention." not in text


def test_a_missing_migration_costs_only_one_part(operator: Client, consumer: Consumer) -> None:
    """If columns of a table are missing, the page advises `migrate` and shows its other parts."""
    published(consumer, 3)
    query("CREATE TEMP TABLE pulljobs_node (id uuid)")  # hides the real table
    try:
        page = read_dashboard(operator)
    finally:
        query("DROP TABLE pg_temp.pulljobs_node")
    text = visible_text(page)
    assert "The database did not answer: workers. The database lacks a migration" in text
    assert "run manage.py migrate" in text
    assert tile(page, "Ready").startswith("3 ")


def test_the_page_needs_a_permission_of_its_own(db: None) -> None:
    user = User.objects.create_user("rita", is_staff=True)
    rita = browser_of(user)
    assert rita.get(PAGE).status_code == 403
    assert PAGE not in rita.get("/admin/").content.decode()
    user.user_permissions.add(Permission.objects.get(codename="view_dashboard"))
    assert rita.get(PAGE).status_code == 200
    assert PAGE in rita.get("/admin/").content.decode()
    assert Client().get(PAGE).status_code == 302


def test_links_lead_only_to_pages_that_the_user_may_see(consumer: Consumer) -> None:
    JobFactory.create(consumer=consumer, state=State.DEAD)
    user = User.objects.create_user("rita", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_dashboard"))
    page = read_dashboard(browser_of(user))
    assert reverse("admin:pulljobs_job_changelist") not in page
    assert reverse("admin:pulljobs_consumer_change", args=[consumer.pk]) not in page


@override_settings(ROOT_URLCONF="tests.dashboard.test_page")
def test_the_page_works_in_another_admin_site(operator: Client, consumer: Consumer) -> None:
    """A site with the dashboard alone shows it, without links to pages of the other admin site."""
    JobFactory.create(consumer=consumer, state=State.DEAD)
    index = operator.get("/elsewhere/").content.decode()
    assert "/elsewhere/pulljobs/dashboard/" in index
    answer = operator.get("/elsewhere/pulljobs/dashboard/")
    assert answer.status_code == 200
    assert 'href="/admin/' not in answer.content.decode()
    assert tile(answer.content.decode(), "Dead").startswith("1 ")


@pytest.mark.parametrize("chosen", ["hour", "day", "week", "month", "nonsense"])
def test_the_page_has_no_inline_script_and_no_inline_style(
    operator: Client, consumer: Consumer, chosen: str
) -> None:
    JobFactory.create(consumer=consumer, state=State.DEAD)
    page = read_dashboard(operator, range=chosen, consumer="nobody")
    assert not re.findall(r"<style|\sstyle=|\son\w+=|javascript:", page)
    assert not re.findall(r"<script(?![^>]*\ssrc=)", page)


def test_more_consumers_need_no_more_queries(
    operator: Client, consumer: Consumer, django_assert_max_num_queries: Any
) -> None:
    Consumer.objects.update(fair_by_key=True)
    with django_assert_max_num_queries(60) as few:
        read_dashboard(operator)
    ConsumerFactory.create_batch(5, fair_by_key=True)
    with django_assert_max_num_queries(len(few)):
        read_dashboard(operator)


urlpatterns = [path("elsewhere/", elsewhere.urls)]


def test_limits_are_shown_with_what_is_used_of_them(operator: Client, consumer: Consumer) -> None:
    assert "Consumer or group" not in read_dashboard(operator)
    JobFactory.create(consumer=consumer, state=State.DELIVERED)
    JobFactory.create(consumer=consumer, state=State.INFLIGHT)
    group = LimitGroup.objects.create(name="stripe-api", rate="9/m", rate_window=True)
    consumer.rate, consumer.max_in_flight, consumer.limit_group = "2/s", 3, group
    consumer.save()
    throttles.throttle(USING, {consumer.pk: 60.0})
    shown = visible_text(read_dashboard(operator))
    assert "stripe-api 9/m in fixed windows 1 of 9 1" in shown
    assert re.search(r"orders/invoicing throttled until \S+ \S+( UTC)? 2/s and 3 in flight", shown)
    assert "2/s and 3 in flight 1 of 120 1 of 3" in shown


def test_keys_that_wait_for_their_turn_are_shown(operator: Client, consumer: Consumer) -> None:
    consumer.fair_by_key = True
    consumer.save()
    for _message in range(2):
        for key in ("<a>", "b"):
            published(consumer, key=key)
    Puller(USING, consumer).claim(1)
    page = read_dashboard(operator)
    assert re.search(r"(b|<a>) \(\d", visible_text(page).partition("Keys")[2])
    assert "<a>" not in page
