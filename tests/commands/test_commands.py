"""Every subcommand: one line of JSON, plain text without escape sequences, mistakes in one line."""

import json
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import BytesIO, StringIO, TextIOWrapper

import pytest
from django.core.management import CommandError, call_command, execute_from_command_line
from django.db import connections
from django.test import override_settings

from pulljobs.models import Consumer, Lease, Node
from pulljobs.storage import nodes
from tests.commands.terminal import ESCAPE
from tests.commands.verbs import CASES, EVERY, MISTAKES, RUNS
from tests.days import no_days
from tests.diagnosis.commands import answer, text
from tests.factories import USING, ChannelFactory, JobFactory, published
from tests.sessions import contents, lock_timeout, session


def arguments(name: str, number: int, consumer: Consumer, files: dict[str, str]) -> list[str]:
    filled = [name, *RUNS[name][number](consumer)]
    for word, path in files.items():
        filled = [one.replace(f"{{{word}}}", path) for one in filled]
    return filled


def said(*arguments: str) -> str:
    output = StringIO()
    call_command("pulljobs", *arguments, stdout=output)
    return output.getvalue()


def test_every_subcommand_is_here() -> None:
    assert sorted(RUNS) == sorted(EVERY)


@pytest.mark.parametrize(("name", "number"), CASES, ids=[f"{a}-{b}" for a, b in CASES])
def test_answers_in_json_in_plain_text_and_in_colours(
    name: str, number: int, consumer: Consumer, files: dict[str, str]
) -> None:
    """Wherever --json stands it is one line, which parses; a pipe gets no escape sequence."""
    told = said(*arguments(name, number, consumer, files), "--json")
    assert told.count("\n") == 1
    assert isinstance(json.loads(told), dict)
    assert json.loads(said("--json", *arguments(name, number, consumer, files)))
    plain = said(*arguments(name, number, consumer, files))
    assert plain.strip()
    assert ESCAPE not in plain
    assert not any(line != line.rstrip() for line in plain.splitlines())
    coloured = said(*arguments(name, number, consumer, files), "--force-color")
    assert coloured.strip()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_told_in_one_line_and_changes_nothing(
    mistake: str,
    consumer: Consumer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO()))
    given, expected = MISTAKES[mistake]
    before = contents()
    with pytest.raises(SystemExit) as ended:
        execute_from_command_line(["manage.py", "pulljobs", *given])
    assert ended.value.code == 2
    output, error = capsys.readouterr()
    assert output == ""
    assert expected in error
    assert error.count("\n") == 1
    assert contents() == before
    with pytest.raises(CommandError) as raised:
        call_command("pulljobs", *given)
    assert raised.value.returncode == 2


def test_help_says_what_each_is_for_and_what_the_exit_codes_mean(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        call_command("pulljobs", "--help")
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert all(f"    {name} " in told for name in EVERY)
    assert "Exit codes: 0" in told


def test_what_steers_a_terminal_is_spelled_out(consumer: Consumer) -> None:
    """An error's text may come from anybody."""
    call_command("pulljobs", "publish", "orders", "x", "--key", "a\x1b[2Jb", stdout=StringIO())
    told = json.loads(said("publish", "orders", "x", "--key", "a\x1b[2Jb", "--json"))
    shown = said("inspect", "job", told["jobs"][0])
    assert ESCAPE not in shown
    assert "a\\x1b[2Jb" in shown


@pytest.mark.parametrize(
    "given",
    [
        *(["doctor"], ["syncconsumers"], ["publish", "orders", "x"], ["verify"], ["reap"]),
        *(["inspect", "consumer"], ["inspect", "node"], ["inspect", "channel"]),
    ],
    ids=" ".join,
)
def test_database_that_was_never_migrated_is_told_in_one_line(
    given: list[str], capsys: pytest.CaptureFixture[str], unmigrated: None
) -> None:
    with pytest.raises(SystemExit) as ended:
        execute_from_command_line(["manage.py", "pulljobs", *given])
    assert ended.value.code == 1
    error = capsys.readouterr().err
    assert "run manage.py migrate" in error
    assert error.count("\n") == 1


def test_frame_of_a_database_that_fails_has_an_exit_code_of_its_own(unmigrated: None) -> None:
    frame, code = answer("top", "--once")
    assert (code, "run manage.py migrate" in frame["error"]) == (1, True)


@pytest.mark.parametrize("kind", ["consumer", "node"])
def test_database_that_is_away_is_told_where_a_frame_is_listed(
    kind: str, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = connections[USING]
    connection.close()
    with monkeypatch.context() as patched:
        patched.setitem(connection.settings_dict, "NAME", "nowhere")
        with pytest.raises(CommandError, match="The database fails") as raised:
            call_command("pulljobs", "inspect", kind)
    assert raised.value.returncode == 1


INSPECTED: dict[str, tuple[list[str], str]] = {
    "a consumer": (["consumer", "orders/invoicing"], "served by        not known"),
    "consumers": (["consumer"], "It is not known."),
    "a channel": (["channel", "orders"], "It is not known."),
    "nodes": (["node"], "It is not known."),
}


@pytest.mark.parametrize("whom", INSPECTED)
def test_what_the_database_does_not_tell_in_time_is_not_known(
    whom: str, consumer: Consumer
) -> None:
    """Nor is it nobody; and what the answer is not made of is not missed."""
    given, expected = INSPECTED[whom]
    with session() as other, lock_timeout("50ms"):
        other.execute("LOCK TABLE pulljobs_node, pulljobs_pull_waiter")
        told, code = answer("inspect", *given)
        shown = text("inspect", *given)
    parts = ["workers"] if whom == "nodes" else ["workers", "consumers"]
    assert (code, told["missed"]) == (1, parts)
    assert expected in shown
    assert "The database did not tell in time: workers" in shown
    assert answer("inspect", *given)[0]["missed"] == []


def test_a_grant_that_lacks_costs_only_what_is_made_of_that_table(no_archive: None) -> None:
    told, code = answer("inspect", "node")
    assert (code, len(told["nodes"]), told["missed"]) == (0, 1, [])
    assert "The database" not in text("inspect", "node")
    with pytest.raises(CommandError, match="The database fails: permission denied for table"):
        call_command("pulljobs", "inspect", "consumer")


def test_channels_that_are_not_listed_are_told(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulljobs.management.inspection.wording.LISTED", 2)
    ChannelFactory.create_batch(3)
    told, _code = answer("inspect", "channel")
    assert (len(told["channels"]), told["in_all"]) == (2, 4)
    assert text("inspect", "channel").endswith("and 2 more\n")


@pytest.mark.parametrize("given", ["doctor", "partitions"])
def test_rows_of_a_default_partition_are_told_as_the_least_where_they_are_many(
    given: str, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulljobs.storage.blockers.COUNT_CAP", 2)
    with no_days():
        for count, expected in ((1, "holds 1 rows:"), (3, "holds 2 rows or more:")):
            published(consumer, count)
            assert f"pulljobs_message_default {expected}" in text(given)


TIME = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d{3})?( [A-Z]+)?")


@pytest.mark.parametrize("given", [["doctor"], ["top", "--once"], ["inspect", "job"]], ids=" ".join)
@override_settings(TIME_ZONE="America/New_York")
def test_times_are_those_of_utc_and_say_so(given: list[str], consumer: Consumer) -> None:
    """Of whatever zone the pages are."""
    soon = nodes.clock(USING) + timedelta(minutes=10)
    held = JobFactory.create(consumer=consumer, state="INFLIGHT")
    Lease.objects.update(renewals=1, leased_until=soon - timedelta(minutes=20))
    Node.objects.update(heartbeat_at=soon - timedelta(minutes=20))
    Consumer.objects.update(paused_until=soon)
    shown = text(*given, *([str(held.id)] if given[0] == "inspect" else []))
    found = TIME.findall(shown)
    assert len(found) >= 2
    assert {zone for _time, zone in found} == {" UTC"}
    told = [datetime.fromisoformat(time).replace(tzinfo=UTC) for time, _zone in found]
    assert max(abs(one - soon) for one in told) < timedelta(hours=2)
    if given[0] == "inspect":
        assert f"last until {soon - timedelta(minutes=20):%H:%M:%S}" in shown


@pytest.fixture
def unmigrated(transactional_db: None) -> Iterator[None]:
    """Or so it seems."""
    with connections[USING].cursor() as cursor:
        cursor.execute("SET search_path TO pg_catalog")
    yield
    connections[USING].close()
