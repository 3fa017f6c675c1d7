"""Delete all DEAD jobs or a selection; their history stays in the archive."""

import time
from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from pulljobs import auditing, ids
from pulljobs.auditing import Preview
from pulljobs.conf import settings
from pulljobs.errors import ConfigurationError
from pulljobs.management import lookups, pruning
from pulljobs.management.inspection.consumer import path_of
from pulljobs.management.output_blocks import FactsBlock, StyledText
from pulljobs.management.parsing import parse_duration
from pulljobs.management.subcommands import EXIT_OK, EXIT_PROBLEM, CommandResult
from pulljobs.models import AuditEntry
from pulljobs.progress import Progress, show_progress
from pulljobs.states import Event, Reason, State
from pulljobs.storage import nodes
from pulljobs.storage.selecting import Selection

SLICE = 1.0
"""Seconds of work between two reports of the progress."""
PAUSE = 0.1
"""Seconds to wait while a worker deletes the jobs."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="CHANNEL[/CONSUMER]", help="delete only their jobs"
    )
    parser.add_argument(
        "--older-than",
        type=parse_duration,
        metavar="TIME",
        help="delete only jobs created that long ago or earlier, such as 30d",
    )
    parser.add_argument(
        "--reason", choices=[reason.value for reason in Reason], metavar="REASON",
        help=f"delete only jobs that died of this: {', '.join(Reason)}",
    )  # fmt: skip
    pruning.add_common_arguments(parser)


def handle(**options: Any) -> CommandResult:
    selection, subject = _select(options)
    preview = auditing.preview(Event.DELETE, selection)
    question = f"Delete {_count(preview)} {subject}?"
    if not options["dry_run"]:
        pruning.require_confirmation(yes=options["yes"])
    if options["dry_run"] or not (preview.jobs and pruning.confirm(question, yes=options["yes"])):
        return _preview_result(preview, subject)
    entry = auditing.begin(
        Event.DELETE, selection, by=pruning.operator_name(), subject=subject, expected=preview
    )
    total = None if preview.is_more else preview.jobs
    with show_progress("prune dead", "jobs", total) as progress:
        _carry_out(entry, progress)
    return _result(entry)


def _carry_out(entry: AuditEntry, progress: Progress) -> None:
    """Delete until the entry is finished or stopped. Workers may take part."""
    while entry.finished_at is None:
        has_proceeded = auditing.proceed(SLICE, entry.pk)
        entry.refresh_from_db(using=settings().DATABASE)
        progress.advance(entry.done - progress.done)
        if not has_proceeded and entry.finished_at is None:
            time.sleep(PAUSE)


def _select(options: dict[str, Any]) -> tuple[Selection, str]:
    """Return the selection of the arguments, and its description."""
    chosen = lookups.find_consumers(options["only"])
    if options["only"] and not chosen:
        raise ConfigurationError("These channels have no consumers.")
    selection = Selection(states=(State.DEAD.value,), reason=options["reason"])
    description = [f"of {', '.join(map(path_of, chosen))}" if chosen else "of all consumers"]
    if chosen:
        selection = selection._replace(consumer_ids=tuple(consumer.pk for consumer in chosen))
    if options["reason"]:
        description.append(f"that died of {options['reason']}")
    if options["older_than"] is not None:
        selection = selection._replace(last=_last_id(options["older_than"]))
        description.append(f"older than {options['older_than']}")
    return selection, " ".join(description)


def _last_id(age: timedelta) -> int:
    return ids.first_of(nodes.clock(settings().DATABASE) - age)


def _count(preview: Preview) -> str:
    return f"{preview.jobs:,} dead jobs or more" if preview.is_more else _count_jobs(preview.jobs)


def _count_jobs(count: int) -> str:
    return f"{count:,} dead {'job' if count == 1 else 'jobs'}"


def _preview_result(preview: Preview, subject: str) -> CommandResult:
    oldest = [ids.encode(job_id) for job_id in preview.first]
    content = {"jobs": preview.jobs, "is_more": preview.is_more, "oldest": oldest, "deleted": 0}
    if not preview.jobs:
        return CommandResult(content, [f"There are no dead jobs {subject}."])
    return CommandResult(
        content,
        [
            f"{_count(preview)} {subject}: would be deleted.",
            FactsBlock([("the oldest", StyledText("\n".join(oldest)))]),
        ],
    )


def _result(entry: AuditEntry) -> CommandResult:
    content = {
        "entry": str(entry),
        "deleted": entry.done,
        "left_alone": entry.refused,
        "stopped_by": entry.stopped_by or None,
    }
    lines = [f"{_count_jobs(entry.done)} {entry.subject}: deleted."]
    if entry.refused:
        lines.append(f"{entry.refused:,} left alone: their state had changed.")
    if entry.stopped_by:
        lines.append(f"Stopped by {entry.stopped_by}: the other jobs stay.")
    lines.append(f"In the audit trail: {entry}.")
    return CommandResult(content, lines, EXIT_PROBLEM if entry.stopped_by else EXIT_OK)
