"""`pulljobs top`: a screen on a terminal that it restores, and plain frames elsewhere."""

import json
import os
import signal
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any
from uuid import uuid4

import pytest
from django.db.models.functions import Now

from pulljobs import operating
from pulljobs.management.output import Output
from pulljobs.management.subcommands import top
from pulljobs.models import LimitGroup, Node
from pulljobs.pulling import Puller
from pulljobs.states import State
from pulljobs.storage import backlog, nodes
from tests.commands.terminal import CURSOR_SHOWN, ESCAPE, PATIENCE, SCREEN_LEFT, Terminal, piped
from tests.diagnosis.commands import answer, text
from tests.factories import USING, ChannelFactory, ConsumerFactory, JobFactory, claimed, published
from tests.sessions import lock_timeout, query, session, wait_until

pytestmark = pytest.mark.django_db(transaction=True)
OFTEN = "--interval=0.3"


@pytest.fixture(autouse=True)
def _partitions() -> None:
    """Create the partitions, as every worker does."""
    answer("maintain")


def is_restored(terminal: Terminal) -> bool:
    output = terminal.raw
    return (
        terminal.is_restored
        and output.rfind(SCREEN_LEFT) > output.rfind("\x1b[?1049h")
        and output.rfind(CURSOR_SHOWN) > output.rfind("\x1b[?25l")
    )


@pytest.mark.processes
def test_the_screen_refreshes_obeys_keys_and_restores_the_terminal() -> None:
    consumer = ConsumerFactory.create(channel__name="orders", name="invoicing")
    published(consumer, 7)
    with Terminal(["top", OFTEN], 140, 30) as terminal:
        terminal.wait_for("7 ready, 0 in flight")
        terminal.wait_for("last minute")
        assert not terminal.is_restored  # no echo, keys without Return
        published(consumer, 5)
        terminal.wait_for("12 ready, 0 in flight")
        query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        published(consumer, 1)
        terminal.wait_for("13 ready, 0 in flight")
        terminal.press("s")
        terminal.wait_for("by queue")
        terminal.press("?")
        terminal.wait_for("quit, as Ctrl-C does")
        terminal.press("?")
        terminal.press(" ")
        terminal.wait_for("held")
        published(consumer, 1)
        terminal.press("r")
        terminal.wait_for("14 ready, 0 in flight")
        terminal.press(" q")
        assert terminal.wait_for_exit() == 0
        assert is_restored(terminal)


def is_whole(lines: list[str]) -> bool:
    """Return True if the screen shows all tables and lines that `top` draws."""
    return (
        any(line.endswith("not served") for line in lines)
        and any(line.startswith("and ") and line.endswith(" more") for line in lines)
        and any("Jobs of zoo/keeper wait" in line for line in lines)
        and any("keeper" in line and line.startswith("zoo") for line in lines)
    )


@pytest.mark.processes
def test_a_narrow_screen_shows_the_most_urgent_rows_and_ctrl_c_quits() -> None:
    channel = ChannelFactory.create(name="orders")
    for number in range(40):
        ConsumerFactory.create(channel=channel, name=f"consumer-{number:02}")
    busiest = ConsumerFactory.create(channel__name="zoo", name="keeper")
    published(busiest, 3)
    with Terminal(["top", OFTEN], 80, 24) as terminal:
        terminal.wait_for("3 ready, 0 in flight")
        terminal.wait_for("Jobs of zoo/keeper wait")
        terminal.wait_for("and ")
        wait_until(lambda: is_whole(terminal.lines), PATIENCE)
        lines = terminal.lines
        assert max(map(len, lines)) <= 80
        assert next(line for line in lines if "keeper" in line or "orders" in line).startswith(
            "zoo"
        )
        assert lines[0].startswith("pulljobs top")
        terminal.resize(140, 40)
        terminal.wait_for("last minute")
        terminal.press("\x03")
        assert terminal.wait_for_exit() == 0
        assert "Traceback" not in terminal.raw
        assert is_restored(terminal)


@pytest.mark.processes
def test_ctrl_z_and_sigterm_restore_the_terminal() -> None:
    ConsumerFactory.create(channel__name="orders", name="invoicing")
    with Terminal(["top", OFTEN], 100, 24) as terminal:
        terminal.wait_for("orders/invoicing")
        terminal.press("\x1a")
        pid, status = os.waitpid(terminal.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        wait_until(lambda: is_restored(terminal), PATIENCE)
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: not is_restored(terminal), PATIENCE)
        terminal.press("?")
        terminal.wait_for("quit, as Ctrl-C does")
        os.kill(pid, signal.SIGTERM)
        assert terminal.wait_for_exit() == 0
        assert is_restored(terminal)


@pytest.mark.processes
@pytest.mark.parametrize("environ", [{"TERM": "dumb"}, {"NO_COLOR": "1"}], ids=["dumb", "no color"])
def test_a_simple_terminal_gets_plain_frames(environ: dict[str, str]) -> None:
    ConsumerFactory.create(channel__name="orders", name="invoicing")
    with Terminal(["top", OFTEN], 80, 24, **environ) as terminal:
        wait_until(lambda: terminal.raw.count("orders/invoicing") >= 2, PATIENCE)
        terminal.press("\x03")
        assert terminal.wait_for_exit() == 0
        assert terminal.raw.count("pulljobs top, ") >= 2
        assert ESCAPE not in terminal.raw
        assert terminal.is_restored


@pytest.mark.processes
def test_a_pipe_gets_a_line_of_json_for_each_frame_and_no_escape_sequence() -> None:
    ConsumerFactory.create(channel__name="orders", name="invoicing")
    done = piped("top", "--json", "--frames=2", "--interval=0.1")
    assert (done.returncode, done.stderr) == (0, "")
    frames = [json.loads(line) for line in done.stdout.splitlines()]
    assert [frame["consumers"][0]["consumer"] for frame in frames] == ["orders/invoicing"] * 2
    assert frames[0]["at"] < frames[1]["at"]


def test_a_frame_shows_the_status_of_consumers() -> None:
    consumer = ConsumerFactory.create(channel__name="orders", name="invoicing")
    published(consumer, 2)
    published(consumer, delay=timedelta(hours=1))
    JobFactory.create(consumer=consumer, state="DEAD")
    for _ in range(3):
        JobFactory.create(consumer=consumer, state="DELIVERED")
    claimed(consumer, 1)
    frame, code = answer("top", "--once")
    [row] = frame["consumers"]
    counts = {name: row[name] for name in ("ready", "delayed", "in_flight", "dead")}
    assert (code, counts["delayed"], counts["in_flight"], counts["dead"]) == (0, 1, 1, 1)
    assert (row["ready"], row["blocked"]) == (1, 0)
    assert row["settled_per_second"] > 0
    assert frame["settled_per_second"] == row["settled_per_second"]
    assert row["oldest_ready_seconds"] >= 0


def test_a_frame_shows_the_limit_that_holds_a_consumer_back() -> None:
    group = LimitGroup.objects.create(name="stripe", max_in_flight=1)
    now, soon = Now(), Now() + timedelta(minutes=5)
    wanted: dict[str, tuple[dict[str, Any], str, str]] = {
        "a": ({"rate": "1/h"}, "rate_limited", "at its rate"),
        "b": ({"rate": "1/h", "rate_window": True}, "rate_limited", "at its rate"),
        "c": ({"max_in_flight": 1}, "max_in_flight", "at max_in_flight"),
        "d": ({"limit_group": group}, "max_in_flight", "at max_in_flight"),
        "e": ({"max_in_flight_per_key": 1}, "key_limited", "keys: 1 full"),
        "f": ({"rate": "1/h", "rate_per_key": True}, "key_limited", "keys: 1 later"),
        "g": ({"throttled_until": soon}, "throttled", "throttled, 5 min"),
        "h": ({"fair_by_key": True}, "", "busy"),
        "i": ({"throttled_until": now}, "", "busy"),
    }
    for name, (fields, _code, _state) in wanted.items():
        consumer = ConsumerFactory.create(channel__name=name, name=name, **fields)
        published(consumer, 2, key="one")
        Puller(USING, consumer).claim(1)
    frame, _exit_code = answer("top", "--once")
    shown = text("top", "--once").splitlines()
    for row in frame["consumers"]:
        _fields, code, state = wanted[row["consumer"][0]]
        assert (row["limit"] or {"code": ""})["code"] == code
        [line] = [each for each in shown if each.startswith(f"{row['consumer']} ")]
        assert line.endswith(("not served", state))


def test_a_frame_shows_the_activity_of_nodes_and_problems() -> None:
    consumer = ConsumerFactory.create(channel__name="orders", name="invoicing")
    [job] = published(consumer)
    place = "orders/invoicing"
    node_id = uuid4()
    nodes.register(USING, node_id, "host:1")
    report = {
        "serves": [place],
        "loops": {"fetcher": {"alive": True}},
        "circuits": {place: {"state": "open", "level": 3, "seconds": 8}},
        "running": [{"job": str(job), "consumer": place, "slot": 0, "seconds": 2.0, "ended": None}],
        "held": 5,
        "done": 1234,
    }
    Node.objects.filter(pk=node_id).update(report=report, heartbeat_at=Now())
    shown = text("top", "--once")
    assert "host:1" in shown
    assert "orders/invoicing × 1, 2" in shown
    assert "held back, 1/1" in shown
    assert "1,234" in shown
    assert f"{place} is held back" in shown
    Node.objects.filter(pk=node_id).update(heartbeat_at=Now() - timedelta(hours=1))
    shown = text("top", "--once")
    assert "not served" in shown
    assert "host:1 has had no heartbeat" in shown


def test_a_frame_claims_nothing_about_parts_that_were_not_read() -> None:
    """If tables are not read in time, `top` does not say that nothing needs attention."""
    ConsumerFactory.create(channel__name="orders", name="invoicing")
    with session() as other, lock_timeout("50ms"):
        other.execute("LOCK TABLE pulljobs_pull_waiter, pulljobs_archived_job")
        shown = text("top", "--once")
    assert "The database did not answer in time: consumers, throughput" in shown
    assert "jobs: not known; – settled/s" in shown
    assert "Nothing needs attention." not in shown
    assert "There is no consumer." not in shown
    assert "Nothing needs attention." in text("top", "--once")


def test_a_refused_part_is_reported_and_the_others_are_shown(no_archive: None) -> None:
    frame, code = answer("top", "--once")
    assert (code, frame["missed"]) == (1, ["throughput"])
    assert "permission denied for table pulljobs_archived_job" in frame["error"]
    shown = text("top", "--once")
    assert "The database did not answer: throughput.\nThe role lacks a privilege" in shown
    assert "0 ready, 0 in flight; – settled/s" in shown
    assert "orders/invoicing" in shown


@pytest.mark.processes
def test_the_screen_has_room_for_the_reason_of_a_refused_part() -> None:
    consumer, *_others = ConsumerFactory.create_batch(40)
    published(consumer)
    nodes.register(USING, uuid4(), "host:1")
    query("ALTER TABLE pulljobs_archived_job RENAME TO pulljobs_hidden")
    try:
        with Terminal(["top", OFTEN], 120, 24) as terminal:
            terminal.wait_for("run manage.py migrate")
            terminal.wait_for("wait and no process serves it.")
    finally:
        query("ALTER TABLE pulljobs_hidden RENAME TO pulljobs_archived_job")


def test_run_times_are_those_of_the_heartbeat() -> None:
    """Run times are shown as of the heartbeat: since then the job may have ended."""
    [job] = published(ConsumerFactory.create(channel__name="orders", name="invoicing"))
    node_id = uuid4()
    nodes.register(USING, node_id, "host:1")
    running = [{"job": str(job), "consumer": "orders/invoicing", "seconds": 2.0, "ended": None}]
    beat = Now() - timedelta(seconds=9)
    Node.objects.filter(pk=node_id).update(report={"running": running}, heartbeat_at=beat)
    [row] = answer("inspect", "node", "host:1")[0]["running"]
    assert row["seconds"] == 2.0
    assert "orders/invoicing × 1, 2 s" in text("top", "--once")


def test_a_frame_includes_consumers_without_an_estimate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pulljobs.management.top.frame.ESTIMATED", 1)
    ConsumerFactory.create(channel__name="orders", name="invoicing")
    published(ConsumerFactory.create(channel__name="zoo", name="keeper"), 3)
    frame, _code = answer("top", "--once")
    assert [row["ready"] for row in frame["consumers"]] == [0, 3]
    assert "Jobs of zoo/keeper wait" in " ".join(problem["text"] for problem in frame["problems"])


def test_json_names_the_counts_that_were_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """`at_least` names counts cut off at `cap`. DEAD jobs have a higher cap, so may exceed it."""
    consumer = ConsumerFactory.create()
    for state in (State.QUEUED, State.DEAD):
        JobFactory.create_batch(3, consumer=consumer, state=state)
    monkeypatch.setattr(backlog, "CAPS", (2,))
    frame, _code = answer("top", "--once")
    [row] = frame["consumers"]
    assert (row["ready"], row["dead"], row["cap"], row["at_least"]) == (2, 3, 2, ["ready"])
    assert frame["settled_is_estimate"] is False


def test_a_frame_shows_only_the_requested_consumers() -> None:
    ConsumerFactory.create(channel__name="orders", name="invoicing")
    ConsumerFactory.create(channel__name="news", name="mailing")
    frame, _code = answer("top", "orders", "--once")
    assert [row["consumer"] for row in frame["consumers"]] == ["orders/invoicing"]
    frame, _code = answer("top", "--once", "news/mailing", "orders")
    assert {row["consumer"] for row in frame["consumers"]} == {"orders/invoicing", "news/mailing"}


def test_each_frame_reads_the_requested_consumers_again() -> None:
    """At each interval `top` reads pauses and consumers again, and shows new ones."""
    consumer = ConsumerFactory.create(channel__name="orders", name="invoicing")
    output = Output(StringIO(), as_json=True)
    frames = top.handle(
        output, only=["orders"], once=False, frames=2, interval=top.MIN_INTERVAL, sort="name"
    )
    [row] = next(frames).content["consumers"]
    assert row["paused_until"] is None
    operating.pause(consumer, datetime(2999, 1, 1, tzinfo=UTC))
    ConsumerFactory.create(channel=consumer.channel, name="mailing")
    paused = {row["consumer"]: row["paused_until"] for row in next(frames).content["consumers"]}
    assert paused == {"orders/invoicing": consumer.paused_until, "orders/mailing": None}
