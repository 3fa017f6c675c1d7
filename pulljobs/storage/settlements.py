"""Selection of rows of the archive for lists, by their own ids or by those of their jobs.

A window is the next few ids of a selection, as in `selecting`.
"""

from datetime import timedelta
from typing import Final

from django.db.models import QuerySet

from pulljobs import ids
from pulljobs.models import ArchivedJob, Message
from pulljobs.storage.selecting import Row, Selection, chosen, within
from pulljobs.storage.windows import IdRun, IdSpan, IdWindow, merged

COLUMNS: Final = ("id", "consumer_id", "state", "reason", "message_id")
SCANNED_FOR_A_KEY: Final = 2_000
"""Maximum number of settlements read for a key, because each needs a look-up of its message."""


CLOCKS_DIFFER: Final = timedelta(hours=1)
"""Time by which the clock of a promoted standby may be behind that of the old primary."""


def window(using: str, selection: Selection, span: IdSpan, *, by: str = "id") -> IdWindow:
    """Return the next ids of selected settlements, or with `by="job_id"` of the settled jobs.

    The ids in `selection` and `span` are of the same kind.
    """
    if selection.among is not None:
        return merged([chosen(selection.among, span)], span)
    if selection.key is not None:
        span = span.narrow(min(span.scanned, SCANNED_FOR_A_KEY))
    inside = within(selection, span)
    near = merged([_run(using, selection, inside.narrow(inside.wanted + 1), by)], span)
    if near.beyond is None or len(near.ids) >= span.wanted:
        return near
    return merged([_run(using, selection, inside, by)], span)


def newest_of(rows: QuerySet[ArchivedJob], job_ids: list[int]) -> dict[int, ArchivedJob]:
    """Return the last settlement of each job by job id. Jobs without a settlement are left out."""
    settled = since(rows, job_ids).filter(job_id__in=job_ids).defer("result") if job_ids else ()
    # Sorted here: in the order of ids the server might read all of them.
    return {row.job_id: row for row in sorted(settled, key=lambda row: row.pk)}


def since(rows: QuerySet[ArchivedJob], job_ids: list[int]) -> QuerySet[ArchivedJob]:
    """Restrict rows to ids from the oldest of the jobs on, so that older partitions are not read.

    A job is settled after it is published.
    """
    return rows.filter(id__gte=max(0, ids.first_of(ids.time_of(min(job_ids)) - CLOCKS_DIFFER)))


def _run(using: str, selection: Selection, span: IdSpan, by: str) -> IdRun:
    rows = ArchivedJob.objects.using(using).filter(**{f"{by}__lt": span.beyond})
    if selection.first:
        rows = rows.filter(**{f"{by}__gte": selection.first})
    columns = dict.fromkeys([*COLUMNS, by])
    read = rows.order_by(f"-{by}").values(*columns)[: span.scanned]
    seen: list[Row] = [{**row, "id": row[by], "own_id": row["id"]} for row in read]
    fitting = [row for row in seen if selection._replace(key=None).fits(row)]
    if selection.key is not None:
        named = _named(using, selection.key, [row["message_id"] for row in fitting])
        fitting = [row for row in fitting if row["message_id"] in named]
    return IdRun([row["id"] for row in fitting], _reached(seen, span))


def _reached(seen: list[Row], span: IdSpan) -> int | None:
    """Return the id beyond which the next window begins, or None if `seen` has the last rows.

    Rows by job id may end among several settlements of one job, which is then read again, unless
    all rows are of this job.
    """
    if len(seen) < span.scanned:
        return None
    last, is_first_repeated = int(seen[-1]["id"]), seen[0]["id"] == seen[-1]["id"]
    is_cut = seen[-1]["id"] != seen[-1]["own_id"] and not is_first_repeated
    return last + 1 if is_cut else last


def _named(using: str, key: str, message_ids: list[int]) -> set[int]:
    """Return the ids of those of the messages that have the key."""
    if not message_ids:
        return set()
    # The bounds limit the query to the partitions of those days.
    bounds = {"pk__gte": min(message_ids), "pk__lte": max(message_ids)}
    rows = Message.objects.using(using).filter(pk__in=message_ids, key=key, **bounds)
    return set(rows.values_list("pk", flat=True))
