"""Checks of the tables for the doctor: snapshots, partitions, owner and rights."""

from collections.abc import Iterator
from datetime import UTC, timedelta
from typing import Final, NamedTuple

from pulljobs.conf import settings
from pulljobs.storage import blockers, grants, nodes, partitions
from pulljobs.storage.grants import Profile

LISTED: Final = 20


class Finding(NamedTuple):
    """Problem that a check reports. `is_error` is set if it blocks jobs or the maintenance now."""

    code: str
    is_error: bool
    text: str


def old_snapshots(age: timedelta) -> Iterator[Finding]:
    """Report what keeps dead rows from being cleaned up."""
    for pin in blockers.pins(settings().DATABASE, age):
        lasting = "" if pin.seconds is None else f" for {pin.seconds:.0f} s"
        yield Finding(
            "old_snapshot",
            True,
            f"The {pin.kind} {pin.name} keeps dead rows from being cleaned up{lasting}, so claims "
            f"get slower: {pin.what}. End it if you can.",
        )


def default_partitions() -> Iterator[Finding]:
    """Report rows that found no partition for their day."""
    for table, count in blockers.in_default(settings().DATABASE).items():
        yield Finding(
            "default_partition",
            True,
            f"{table}_default holds {blockers.counted(count)}: their day had no partition. Run "
            "`pulljobs maintain` as the owner of the tables; it moves them.",
        )


def tables_not_owned() -> Iterator[Finding]:
    """Report tables that the role does not own. Only a missing partition is an error."""
    if tables := blockers.not_owned(settings().DATABASE):
        yield Finding(
            "not_owner",
            False,
            f"This role does not own {list_names(tables)}, so workers create no partitions: "
            "run `pulljobs maintain` as the owner every day, or make this role a member of it.",
        )


def missing_grants() -> Iterator[Finding]:
    """Report missing rights of a role that runs jobs.

    A role that may not update jobs only reads or publishes, and is not checked.
    """
    lacking = grants.lacking(settings().DATABASE, Profile.APP)
    if lacking and "UPDATE" not in lacking.get("pulljobs_job", ()):
        named = [f"{' and '.join(what)} on {table}" for table, what in lacking.items()]
        yield Finding(
            "no_grant",
            True,
            f"This role lacks {list_names(named)}: run what `pulljobs grants` prints as the owner.",
        )


def missing_partitions() -> Iterator[Finding]:
    """Report days ahead that have no partition. For today it is an error."""
    using = settings().DATABASE
    today = nodes.clock(using).astimezone(UTC).date()
    for table in partitions.PARTITIONED:
        there = {partition.day for partition in partitions.existing(using, table)}
        days = [today + timedelta(days=ahead) for ahead in range(settings().PARTITIONS_AHEAD + 1)]
        if missing := [str(day) for day in days if day not in there]:
            yield Finding(
                "missing_partition",
                str(today) in missing,
                f"{table} has no partition for {list_names(missing)}: run `pulljobs maintain`; "
                "every worker does so, too.",
            )


def list_names(names: list[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more
