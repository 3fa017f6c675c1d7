"""Checks of `pulljobs doctor` on the tables: old snapshots, partitions, ownership and grants."""

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, timedelta
from typing import Final, NamedTuple

from django.db import ProgrammingError
from psycopg.errors import InsufficientPrivilege

from pulljobs.conf import settings
from pulljobs.storage import grants, nodes, partitions, schema, snapshots
from pulljobs.storage.transactions import retrying

LISTED: Final = 20


class Finding(NamedTuple):
    """Problem that a check reports. With `is_error` doctor shows it as BLOCKED, else as a note."""

    code: str
    is_error: bool
    text: str


def run_check(check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return the findings of a check, or a finding that the role lacks a privilege for it.

    Repeat a check that loses a conflict, as happens where `wrong_isolation` is to be reported.
    """
    try:
        return retrying(settings().DATABASE, lambda: list(check()))
    except ProgrammingError as error:
        if not isinstance(error.__cause__, InsufficientPrivilege):
            raise
        return [Finding("no_grant", True, f"A check was left out. {schema.advice(error)}.")]


def old_snapshots(age: timedelta) -> Iterator[Finding]:
    """Report sessions, standbys and replication slots that keep VACUUM from removing dead rows.

    Open and prepared transactions are reported if they are older than `age`, standbys if their
    snapshot is far behind, and slots if they are inactive.
    """
    for pin in snapshots.find_old(settings().DATABASE, age):
        lasting = "" if pin.seconds is None else f" for {pin.seconds:.0f} s"
        yield Finding(
            "old_snapshot",
            True,
            f"The {pin.kind} {pin.name} keeps dead rows from being cleaned up{lasting}, so claims "
            f"get slower: {pin.what}. End it if you can.",
        )


def default_partitions() -> Iterator[Finding]:
    """Report rows in the default partitions, because their day had no partition."""
    for table, count in partitions.count_in_default(settings().DATABASE).items():
        rows = partitions.format_count(count)
        yield Finding(
            "default_partition",
            True,
            f"{table}_default holds {rows}: their day had no partition. Run `pulljobs maintain` as "
            "the owner of the tables; it moves them.",
        )


def tables_not_owned() -> Iterator[Finding]:
    """Report tables that the database role does not own, so that it can't add partitions.

    This is a warning: `missing_partitions` reports an error once a partition is missing.
    """
    if tables := schema.not_owned(settings().DATABASE):
        yield Finding(
            "not_owner",
            False,
            f"This role does not own {list_names(tables)}, so workers create no partitions: "
            "run `pulljobs maintain` as the owner every day, or make this role a member of it.",
        )


def read_only_sessions() -> Iterator[Finding]:
    """Report a standby, or a session that may only read though its role has more privileges."""
    if schema.may_only_read(settings().DATABASE):
        yield Finding(
            "read_only",
            True,
            "Sessions of this role may only read, so no job is published, claimed or settled: "
            f"{schema.HOW_TO_WRITE}.",
        )


def wrong_isolation() -> Iterator[Finding]:
    """Report a default isolation level of the role or the database above READ COMMITTED."""
    level = schema.default_isolation(settings().DATABASE)
    if level not in ("read committed", "read uncommitted"):  # They are the same in PostgreSQL.
        yield Finding(
            "wrong_isolation",
            True,
            f"Sessions of this role have the isolation level {level}: statements fail with "
            "serialization errors, and two jobs of an exclusive key could run at once: "
            f"{schema.HOW_TO_ISOLATE}.",
        )


def missing_grants() -> Iterator[Finding]:
    """Report rights that the database role lacks for running jobs.

    A role that may not update jobs only reads or publishes, and is not checked.
    """
    lacking = grants.lacking(settings().DATABASE)
    if lacking and "UPDATE" not in lacking.get("pulljobs_job", ()):
        named = [f"{' and '.join(what)} on {table}" for table, what in lacking.items()]
        yield Finding(
            "no_grant",
            True,
            f"This role lacks {list_names(named)}: {schema.HOW_TO_GRANT}.",
        )


def missing_partitions() -> Iterator[Finding]:
    """Report days up to `PARTITIONS_AHEAD` days from now without a partition.

    A missing partition for today is an error, and for a later day a warning.
    """
    using = settings().DATABASE
    today = nodes.clock(using).astimezone(UTC).date()
    for table in partitions.PARTITIONED:
        there = {partition.day for partition in partitions.existing(using, table)}
        days = [today + timedelta(days=ahead) for ahead in range(settings().PARTITIONS_AHEAD + 1)]
        if missing := [str(day) for day in days if day not in there]:
            yield Finding(
                "missing_partition",
                str(today) in missing,
                f"{table} has no partition for {list_names(missing)}: run `pulljobs maintain` as "
                "the owner of the tables; workers whose role owns them do so, too.",
            )


def list_names(names: list[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more
