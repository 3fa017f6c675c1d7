"""Every verb: JSON in one line, plain text without escape sequences, errors in one line."""

import errno
import json
import re
import sys
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from io import BytesIO, StringIO, TextIOWrapper

import pytest
from django.core.management import CommandError, call_command, execute_from_command_line
from django.db import connections
from django.test import override_settings
from rich.console import Console

from pulljobs.management import plain_output, rich_output
from pulljobs.management.output_blocks import Block, FactsBlock
from pulljobs.models import Consumer, Lease, Node
from pulljobs.storage import clients, nodes
from pulljobs.storage.clients import ClientNote
from tests.commands.terminal import ESCAPE
from tests.commands.verbs import CASES, EVERY, MISTAKES, RUNS
from tests.days import no_days
from tests.diagnosis.commands import answer, text
from tests.factories import USING, ChannelFactory, JobFactory, published
from tests.sessions import contents, lock_timeout, session


def arguments(name: str, number: int, consumer: Consumer, files: dict[str, str]) -> list[str]:
    filled = [name, *RUNS[name][number](consumer)]
    for name, path in files.items():
        filled = [argument.replace(f"{{{name}}}", path) for argument in filled]
    return filled


def run_verb(*arguments: str) -> str:
    output = StringIO()
    call_command("pulljobs", *arguments, stdout=output)
    return output.getvalue()


def test_every_verb_is_tested() -> None:
    assert sorted(RUNS) == sorted(EVERY)


@pytest.mark.parametrize(("name", "number"), CASES, ids=[f"{a}-{b}" for a, b in CASES])
def test_every_verb_prints_json_plain_text_and_colours(
    name: str, number: int, consumer: Consumer, files: dict[str, str]
) -> None:
    """The flag --json may come first or last. Output to a pipe has no escape sequences."""
    result = run_verb(*arguments(name, number, consumer, files), "--json")
    assert result.count("\n") == 1
    assert isinstance(json.loads(result), dict)
    assert json.loads(run_verb("--json", *arguments(name, number, consumer, files)))
    plain = run_verb(*arguments(name, number, consumer, files))
    assert plain.strip()
    assert ESCAPE not in plain
    assert not any(line != line.rstrip() for line in plain.splitlines())
    coloured = run_verb(*arguments(name, number, consumer, files), "--force-color")
    assert coloured.strip()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_invalid_argument_is_one_line_of_error_and_changes_nothing(
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


class BrokenStream(StringIO):
    """Output that can't be written."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def flush(self) -> None:
        raise self.error


@pytest.mark.parametrize("flag", ["--json", "--no-color", "--force-color"])
@pytest.mark.parametrize(("verb", "code"), [("doctor", 1), ("partitions", 0)])
def test_a_closed_pipe_ends_a_verb_with_the_exit_code_of_its_result(
    verb: str, code: int, flag: str, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a closed output a verb exits as usual: with `pipefail`, `doctor | head` as `doctor`."""
    published(consumer)  # No process serves it.
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    with pytest.raises(SystemExit) if code else nullcontext() as ended:
        call_command("pulljobs", verb, flag, stdout=BrokenStream(BrokenPipeError()))
    assert (ended.value.code if ended else 0) == code
    assert isinstance(sys.stdout, StringIO), "the exit must not fail to write the rest"


def test_a_closed_pipe_ends_a_verb_that_prints_again_and_again(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    call_command("pulljobs", "top", "--interval=0.1", stdout=BrokenStream(BrokenPipeError()))


def test_characters_that_the_terminal_lacks_are_escaped(consumer: Consumer) -> None:
    latin = TextIOWrapper(BytesIO(), "latin-1")
    call_command("pulljobs", "inspect", "consumer", "orders/invoicing", stdout=latin)
    assert b"paused until     \\u2013\n" in latin.buffer.getvalue()


def test_a_full_disk_is_one_line_of_error(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    full = BrokenStream(OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(CommandError, match="can't be written: .* No space left") as raised:
        call_command("pulljobs", "partitions", stdout=full)
    assert raised.value.returncode == 1


@pytest.mark.parametrize(
    ("given", "problem"),
    [(["redrive", "--all"], "There is no terminal"), (["publish", "orders"], "stdin is empty")],
)
def test_closed_streams_are_empty(
    given: list[str], problem: str, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    with pytest.raises(CommandError, match=problem):
        call_command("pulljobs", *given)
    call_command("pulljobs", "verify", "--patience=0")


def test_help_lists_the_verbs_and_the_exit_codes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        call_command("pulljobs", "--help")
    assert ended.value.code == 0
    help_text = capsys.readouterr().out
    assert all(f"    {name} " in help_text for name in EVERY)
    assert "Exit codes: 0" in help_text


def test_control_characters_are_escaped(consumer: Consumer) -> None:
    """Control characters in texts of clients, such as keys, never reach the terminal."""
    call_command("pulljobs", "publish", "orders", "x", "--key", "a\x1b[2Jb", stdout=StringIO())
    result = json.loads(run_verb("publish", "orders", "x", "--key", "a\x1b[2Jb", "--json"))
    shown = run_verb("inspect", "job", result["jobs"][0])
    assert ESCAPE not in shown
    assert "a\\x1b[2Jb" in shown


def test_a_line_break_in_a_key_begins_no_row(consumer: Consumer) -> None:
    Consumer.objects.update(exclusive_keys=True)  # otherwise live jobs have no keys
    call_command("pulljobs", "publish", "orders", "x", "--key", "a\nforged", stdout=StringIO())
    _head, *rows = run_verb("list").splitlines()
    assert [row.split()[-1] for row in rows] == ["a\\nforged"]


def test_a_line_break_in_a_sentence_begins_no_line() -> None:
    """A line break in a sentence is escaped. In the value of a fact, it begins an indented line."""
    blocks: list[Block] = ["held by a\nforged\t1", FactsBlock([("error", "a\nb\x85c")])]
    plain = ["held by a\\nforged\\t1", "error  a", "       b\\x85c"]
    assert list(plain_output.render_lines(blocks)) == plain
    printed = StringIO()
    rich_output.print_blocks(Console(file=printed, width=80), blocks)
    assert [line.rstrip() for line in printed.getvalue().splitlines()] == plain


@pytest.mark.parametrize(
    "given",
    [
        *(["doctor"], ["syncconsumers"], ["publish", "orders", "x"], ["verify"], ["reap"]),
        *(["inspect", "consumer"], ["inspect", "node"], ["inspect", "channel"]),
    ],
    ids=" ".join,
)
def test_a_database_without_migrations_is_one_line_of_error(
    given: list[str], capsys: pytest.CaptureFixture[str], unmigrated: None
) -> None:
    with pytest.raises(SystemExit) as ended:
        execute_from_command_line(["manage.py", "pulljobs", *given])
    assert ended.value.code == 1
    error = capsys.readouterr().err
    assert "run manage.py migrate" in error
    assert error.count("\n") == 1


@pytest.fixture
def other_formats(consumer: Consumer) -> Iterator[None]:
    """Let the session send times and intervals in formats that psycopg does not read."""
    with connections[USING].cursor() as cursor:
        cursor.execute("SET datestyle = 'SQL'; SET intervalstyle = 'sql_standard'")
    yield
    connections[USING].close()


@pytest.mark.parametrize("name", EVERY)
def test_every_verb_works_or_names_the_formats_that_it_cannot_read(
    name: str, consumer: Consumer, files: dict[str, str], request: pytest.FixtureRequest
) -> None:
    given = arguments(name, 0, consumer, files)
    request.getfixturevalue("other_formats")
    refusals = []
    with suppress(SystemExit):
        try:
            run_verb(*given)
        except CommandError as error:
            refusals.append(str(error))
    assert all("set datestyle to 'ISO' and intervalstyle" in text for text in refusals)


def test_a_frame_of_a_database_that_fails_exits_with_1(unmigrated: None) -> None:
    frame, code = answer("top", "--once")
    assert (code, "run manage.py migrate" in frame["error"]) == (1, True)


def test_a_consumer_names_the_clients_that_pull_over_http(consumer: Consumer) -> None:
    """`inspect consumer` shows each client's host, address, version and times, also in JSON."""
    clients.record(USING, [ClientNote(consumer.pk, "c-1", "shop-3", "10.0.0.9", "pulljobs/0.1")])
    result, code = answer("inspect", "consumer", "orders/invoicing")
    [client] = result["clients"]
    assert code == 0
    assert client["name"] == "c-1"
    assert client["host"] == "shop-3"
    assert client["address"] == "10.0.0.9"
    assert client["agent"] == "pulljobs/0.1"
    assert client["first_seen_at"] == client["seen_at"]
    shown = text("inspect", "consumer", "orders/invoicing")
    assert re.search(r"c-1 +shop-3 +10\.0\.0\.9 +pulljobs/0\.1 +20", shown)


@pytest.mark.parametrize(
    "given", [["inspect", "consumer"], ["inspect", "node"], ["verify"]], ids=" ".join
)
def test_a_database_that_is_unreachable_is_one_line_of_error(
    given: list[str], consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = connections[USING]
    connection.close()
    with monkeypatch.context() as patched:
        patched.setitem(connection.settings_dict, "NAME", "nowhere")
        with pytest.raises(CommandError, match="^The database fails: .*$") as raised:
            call_command("pulljobs", *given)
    assert raised.value.returncode == 1


def test_a_command_starts_without_the_checks_of_models(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checks of models, which connect to the database from Django 6.1 on, do not run."""
    monkeypatch.setattr(Consumer, "check", lambda **kwargs: pytest.fail("it was checked"))
    call_command("pulljobs", "inspect", "consumer", skip_checks=False)


MISSED: dict[str, tuple[list[str], str]] = {
    "a consumer": (["consumer", "orders/invoicing"], "served by        not known"),
    "consumers": (["consumer"], "It is not known."),
    "a channel": (["channel", "orders"], "It is not known."),
    "nodes": (["node"], "It is not known."),
}


@pytest.mark.parametrize("kind", MISSED)
def test_parts_that_the_database_does_not_return_in_time_are_not_known(
    kind: str, consumer: Consumer
) -> None:
    """`inspect` names what it could not read, such as workers, and calls no node absent."""
    given, expected = MISSED[kind]
    with session() as other, lock_timeout("50ms"):
        other.execute("LOCK TABLE pulljobs_node, pulljobs_pull_waiter")
        result, code = answer("inspect", *given)
        shown = text("inspect", *given)
    parts = ["workers"] if kind == "nodes" else ["workers", "consumers"]
    assert (code, result["missed"]) == (1, parts)
    assert expected in shown
    assert "The database did not answer in time: workers" in shown
    assert answer("inspect", *given)[0]["missed"] == []


def test_a_missing_grant_affects_only_the_parts_that_read_the_table(no_archive: None) -> None:
    result, code = answer("inspect", "node")
    assert (code, len(result["nodes"]), result["missed"]) == (0, 1, [])
    assert "The database" not in text("inspect", "node")
    with pytest.raises(CommandError, match="lacks a privilege .*: use another role"):
        call_command("pulljobs", "inspect", "consumer")


def test_a_list_counts_the_channels_that_it_leaves_out(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulljobs.management.inspection.shared.MAX_LISTED", 2)
    ChannelFactory.create_batch(3)
    result, _code = answer("inspect", "channel")
    assert (len(result["channels"]), result["in_all"]) == (2, 4)
    assert text("inspect", "channel").endswith("and 2 more\n")


@pytest.mark.parametrize("given", ["doctor", "partitions"])
def test_many_rows_of_a_default_partition_are_reported_as_a_minimum(
    given: str, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulljobs.storage.partitions.COUNT_CAP", 2)
    with no_days():
        for count, expected in ((1, "holds 1 rows:"), (3, "holds 2 rows or more:")):
            published(consumer, count)
            assert f"pulljobs_message_default {expected}" in text(given)


TIME = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.\d{3})?( [A-Z]+)?")


@pytest.mark.parametrize("given", [["doctor"], ["top", "--once"], ["inspect", "job"]], ids=" ".join)
@override_settings(TIME_ZONE="America/New_York")
def test_times_are_printed_in_utc_with_the_zone(given: list[str], consumer: Consumer) -> None:
    """Times are in UTC, whatever the time zone of the project is."""
    soon = nodes.clock(USING) + timedelta(minutes=10)
    held = JobFactory.create(consumer=consumer, state="INFLIGHT")
    Lease.objects.update(renewals=1, leased_until=soon - timedelta(minutes=20))
    Node.objects.update(heartbeat_at=soon - timedelta(minutes=20))
    Consumer.objects.update(paused_until=soon)
    shown = text(*given, *([str(held.id)] if given[0] == "inspect" else []))
    matches = TIME.findall(shown)
    assert len(matches) >= 2
    assert {zone for _time, zone in matches} == {" UTC"}
    times = [datetime.fromisoformat(time).replace(tzinfo=UTC) for time, _zone in matches]
    assert max(abs(time - soon) for time in times) < timedelta(hours=2)
    if given[0] == "inspect":
        assert f"last until {soon - timedelta(minutes=20):%H:%M:%S}" in shown


@pytest.fixture
def unmigrated(transactional_db: None) -> Iterator[None]:
    """Hide the tables from the session, as in a database without migrations."""
    with connections[USING].cursor() as cursor:
        cursor.execute("SET search_path TO pg_catalog")
    yield
    connections[USING].close()
