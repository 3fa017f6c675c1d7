"""Delete DEAD jobs, all of them or some; what they did stays in the archive."""

import time
from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from pulljobs import auditing, ids
from pulljobs.auditing import Preview
from pulljobs.conf import settings
from pulljobs.errors import ConfigurationError
from pulljobs.management import lookups, operator
from pulljobs.management.inspection.consumer import place_of
from pulljobs.management.output_blocks import FactsBlock, StyledText
from pulljobs.management.parsing import span
from pulljobs.management.pruning import add_common
from pulljobs.management.subcommands import EXIT_OK, EXIT_PROBLEM, CommandResult
from pulljobs.models import AuditEntry
from pulljobs.progress import Progress, shown
from pulljobs.states import Event, Reason, State
from pulljobs.storage import nodes
from pulljobs.storage.selecting import Selection

SLICE = 1.0
"""Seconds of work between two looks at how far it is."""
PAUSE = 0.1
"""Seconds to wait while a worker is at it."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="CHANNEL[/CONSUMER]", help="of these only"
    )
    parser.add_argument(
        "--older-than", type=span, metavar="TIME", help="made so long ago or earlier, such as 30d"
    )
    parser.add_argument(
        "--reason", choices=[one.value for one in Reason], metavar="REASON",
        help=f"died of this only: {', '.join(Reason)}",
    )  # fmt: skip
    add_common(parser)


def handle(**options: Any) -> CommandResult:
    selection, subject = _meant(options)
    found = auditing.preview(Event.DELETE, selection)
    question = f"Delete {_count(found)} {subject}?"
    if not options["dry_run"]:
        operator.must_be_there(yes=options["yes"])
    if options["dry_run"] or not (found.jobs and operator.agrees(question, yes=options["yes"])):
        return _preview(found, subject)
    entry = auditing.begin(
        Event.DELETE, selection, by=operator.name(), subject=subject, expected=found
    )
    total = None if found.is_more else found.jobs
    with shown("prune dead", "jobs", total) as progress:
        _carry_out(entry, progress)
    return _done(entry)


def _carry_out(entry: AuditEntry, progress: Progress) -> None:
    """Until all is done, or somebody stopped it; workers may be at it as well."""
    while entry.finished_at is None:
        went_on = auditing.proceed(SLICE, entry.pk)
        entry.refresh_from_db(using=settings().DATABASE)
        progress.advance(entry.done - progress.done)
        if not went_on and entry.finished_at is None:
            time.sleep(PAUSE)


def _meant(options: dict[str, Any]) -> tuple[Selection, str]:
    """Which, and that in words."""
    chosen = lookups.find_consumers(options["only"])
    if options["only"] and not chosen:
        raise ConfigurationError("These channels have no consumers.")
    selection = Selection(states=(State.DEAD.value,), reason=options["reason"])
    words = [f"of {', '.join(map(place_of, chosen))}" if chosen else "of all consumers"]
    if chosen:
        selection = selection._replace(consumer_ids=tuple(one.pk for one in chosen))
    if options["reason"]:
        words.append(f"that died of {options['reason']}")
    if options["older_than"] is not None:
        selection = selection._replace(last=_last(options["older_than"]))
        words.append(f"older than {options['older_than']}")
    return selection, " ".join(words)


def _last(age: timedelta) -> int:
    return ids.first_of(nodes.clock(settings().DATABASE) - age)


def _count(found: Preview) -> str:
    return f"{found.jobs:,} dead jobs or more" if found.is_more else _jobs(found.jobs)


def _jobs(count: int) -> str:
    return f"{count:,} dead {'job' if count == 1 else 'jobs'}"


def _preview(found: Preview, subject: str) -> CommandResult:
    oldest = [ids.encode(one) for one in found.first]
    content = {"jobs": found.jobs, "is_more": found.is_more, "oldest": oldest, "deleted": 0}
    if not found.jobs:
        return CommandResult(content, [f"There are no dead jobs {subject}."])
    return CommandResult(
        content,
        [
            f"{_count(found)} {subject}: would be deleted.",
            FactsBlock([("the oldest", StyledText("\n".join(oldest)))]),
        ],
    )


def _done(entry: AuditEntry) -> CommandResult:
    content = {
        "entry": str(entry),
        "deleted": entry.done,
        "left_alone": entry.refused,
        "stopped_by": entry.stopped_by or None,
    }
    lines = [f"{_jobs(entry.done)} {entry.subject}: deleted."]
    if entry.refused:
        lines.append(f"{entry.refused:,} left alone: somebody was faster.")
    if entry.stopped_by:
        lines.append(f"Stopped by {entry.stopped_by}: what it had not come to stays.")
    lines.append(f"In the audit trail: {entry}.")
    return CommandResult(content, lines, EXIT_PROBLEM if entry.stopped_by else EXIT_OK)
