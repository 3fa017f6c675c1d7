"""Deletion of outdated rows in batches of 10,000, so that no transaction gets long."""

from datetime import timedelta
from typing import Final, TypeVar

from django.db import connections
from django.db.models import Model, QuerySet

M = TypeVar("M", bound=Model)
AT_ONCE: Final = 10_000


def forget(rows: QuerySet[M]) -> int:
    """Delete a batch of these rows, by rising primary key. Return their number, 0 at the end."""
    batch = rows.order_by("pk").values("pk")[:AT_ONCE]
    return rows.filter(pk__in=batch).delete()[0]


def forget_publications(using: str, age: timedelta, dedupe_window: timedelta) -> int:
    """Delete a batch of client message ids that are older than `age` and return their number.

    Ids inside the dedupe window of their channel stay, and those of messages with a live job, which
    links to its message by the id. `dedupe_window` is that of channels without their own.
    """
    with connections[using].cursor() as cursor:
        cursor.execute(
            "DELETE FROM pulljobs_publication WHERE ctid = ANY(ARRAY("
            "SELECT publication.ctid FROM pulljobs_publication AS publication"
            " LEFT JOIN pulljobs_channel AS channel ON channel.id = publication.channel_id"
            " WHERE published_at < clock_timestamp() - greatest("
            "make_interval(secs => %s), coalesce(dedupe_window, make_interval(secs => %s)))"
            # OFFSET 0: one by one, else the planner may read all jobs into a hash.
            " AND NOT EXISTS (SELECT FROM pulljobs_job"
            " WHERE message_id = publication.message_id OFFSET 0)"
            # A publisher that takes it again has locked it.
            " ORDER BY published_at LIMIT %s FOR UPDATE OF publication SKIP LOCKED))",
            [age.total_seconds(), dedupe_window.total_seconds(), AT_ONCE],
        )
        return int(cursor.rowcount)
