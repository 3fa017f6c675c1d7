"""List live jobs, the newest first.

    list --state DEAD --newer-than 1h
    list --only orders/invoicing --key customer-12 --limit 100

Live jobs are QUEUED, INFLIGHT or DEAD. Payloads are not shown. `inspect job` shows all facts of a
job, even of a delivered one.
"""

from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Any, Final

from pulljobs import ids
from pulljobs.conf import settings
from pulljobs.management import job_filters
from pulljobs.management.inspection.shared import first_line, format_time
from pulljobs.management.output_blocks import Block, Column, TableBlock
from pulljobs.management.parsing import whole_number
from pulljobs.management.subcommands import CommandResult
from pulljobs.models import Job
from pulljobs.states import LIVE
from pulljobs.storage import selecting
from pulljobs.storage.windows import downwards

STATES: Final = tuple(sorted(state.value for state in LIVE))
MAX_LISTED: Final = 10_000
MAX_READ_ROWS: Final = 100_000
COLUMNS: Final = [
    *(Column(name) for name in ("job", "consumer", "state", "created at")),
    *(Column(name, is_number=True) for name in ("retries", "claims")),
    Column("due at"),
    Column("key", may_shrink=True),
    Column("error", may_shrink=True),
]


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--state", nargs="+", choices=STATES, metavar="STATE", help=f"of {', '.join(STATES)}"
    )
    job_filters.add_filters(parser, has_reason=True)
    parser.add_argument(
        "--limit",
        type=whole_number(1, MAX_LISTED),
        default=20,
        metavar="JOBS",
        help="most jobs to list, by default 20",
    )


def handle(*, limit: int, **options: Any) -> CommandResult:
    selection, subject = job_filters.select(options, STATES)
    span = downwards(None, limit, MAX_READ_ROWS)
    window = selecting.window(settings().DATABASE, selection, span)
    rows = Job.objects.using(settings().DATABASE).filter(pk__in=window.ids)
    jobs = list(rows.select_related("consumer__channel").order_by("-pk"))
    content = {"jobs": [_content(job) for job in jobs], "is_more": window.beyond is not None}
    lines: list[Block] = [TableBlock(COLUMNS, _rows(jobs), f"Jobs {subject}: none.")]
    if window.beyond is not None:
        lines.append("There may be more: use --limit, or more filters.")
    return CommandResult(content, lines)


def _content(job: Job) -> dict[str, Any]:
    return {
        "job": ids.encode(job.pk),
        "consumer": job.consumer.path,
        "state": job.state,
        "reason": job.reason,
        "created_at": ids.time_of(job.pk),
        "available_at": job.due_at,
        "retry_count": job.retry_count,
        "deliveries": job.deliveries,
        "key": job.key,
        "error": job.error,
    }


def _rows(jobs: Sequence[Job]) -> list[list[str]]:
    return [
        [
            ids.encode(job.pk),
            job.consumer.path,
            job.state if job.reason is None else f"{job.state}: {job.reason}",
            format_time(ids.time_of(job.pk)),
            str(job.retry_count),
            str(job.deliveries),
            format_time(job.due_at),
            job.key or "",
            first_line(job.error),
        ]
        for job in jobs
    ]
