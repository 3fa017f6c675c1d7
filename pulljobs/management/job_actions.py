"""Common part of the verbs that act on many jobs, such as `kill` and `redrive`.

It has their arguments, the preview, the confirmation, and the action in batches with its audit
entry. The filters of jobs are in `job_filters`.
"""

import os
import sys
import time
from argparse import ArgumentParser
from getpass import getuser
from typing import Any, Final, NamedTuple

from pulljobs import auditing, ids
from pulljobs.auditing import Preview
from pulljobs.conf import settings
from pulljobs.errors import ConfigurationError
from pulljobs.management import job_filters
from pulljobs.management.output_blocks import FactsBlock, StyledText
from pulljobs.management.subcommands import EXIT_OK, EXIT_PROBLEM, CommandResult
from pulljobs.models import AuditEntry
from pulljobs.progress import Progress, show_progress
from pulljobs.states import TRANSITIONS, Event, State

SLICE: Final = 1.0
"""Seconds of work between two reports of the progress."""
PAUSE: Final = 0.1
"""Seconds to wait while a worker carries out the action."""


class Wording(NamedTuple):
    """Words for an action, such as "redrive" and "redriven", and for its jobs, such as "dead"."""

    verb: str
    done: str
    jobs: str
    """Adjective for the jobs that the action is for."""


WORDINGS: Final = {
    Event.REDRIVE: Wording("redrive", "redriven", "dead"),
    Event.KILL: Wording("kill", "killed", "queued or running"),
    Event.RELEASE: Wording("requeue", "requeued", "running"),
    Event.DELETE: Wording("delete", "deleted", "dead"),
}


def add_arguments(parser: ArgumentParser, event: Event) -> None:
    """Add the arguments of a verb to its parser: ids of jobs or filters, preview, confirmation."""
    verb = WORDINGS[event].verb
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=f"ids of the jobs to {verb}")
    parser.add_argument("--all", action="store_true", help=f"{verb} all jobs whose state allows it")
    if len(TRANSITIONS[event].sources) > 1:
        states = sorted(state.value for state in TRANSITIONS[event].sources)
        parser.add_argument(
            "--state", nargs="+", choices=states, metavar="STATE",
            help=f"{verb} only jobs in these states: {', '.join(states)}",
        )  # fmt: skip
    job_filters.add_filters(parser, has_reason=State.DEAD in TRANSITIONS[event].sources)
    add_confirmation(parser, verb)


def add_confirmation(parser: ArgumentParser, verb: str) -> None:
    """Add the flags `--dry-run` (preview) and `--yes` (no confirmation) to a parser."""
    parser.add_argument(
        "--dry-run", action="store_true", help="show the jobs that are meant, and change nothing"
    )
    parser.add_argument("--yes", action="store_true", help=f"{verb} without a confirmation")


def run(event: Event, options: dict[str, Any]) -> CommandResult:
    """Act on the jobs that the options select, after a preview and the operator's confirmation.

    `event` is the action. The jobs are changed in batches, with an entry in the audit trail. With
    `--dry-run`, without jobs or if the operator declines, the result is the preview.
    """
    selection, subject = job_filters.select(options, tuple(sorted(TRANSITIONS[event].sources)))
    wording = WORDINGS[event]
    preview = auditing.preview(event, selection)
    question = f"{wording.verb.capitalize()} {_count(preview, wording)} {subject}?"
    if not options["dry_run"]:
        require_confirmation(yes=options["yes"])
    if options["dry_run"] or not (preview.jobs and confirm(question, yes=options["yes"])):
        return _preview_result(wording, preview, subject)
    entry = auditing.begin(event, selection, by=operator_name(), subject=subject, expected=preview)
    total = None if preview.is_more else preview.jobs
    with show_progress(wording.verb, "jobs", total) as progress:
        _carry_out(entry, progress)
    return _result(wording, entry)


def operator_name() -> str:
    """Return the user of this process, by LOGNAME or the operating system, for the audit trail."""
    try:
        return f"{getuser()} (command line)"
    except (KeyError, OSError):  # the user of a container may have no name
        return f"user {os.getuid()} (command line)"


def require_confirmation(*, yes: bool) -> None:
    """Raise `ConfigurationError` if neither `--yes` nor a terminal to ask on is given."""
    if not (yes or sys.stdin.isatty()):
        raise ConfigurationError(
            "There is no terminal for a confirmation: use --yes, or look first with --dry-run."
        )


def confirm(question: str, *, yes: bool) -> bool:
    """Ask the operator on the terminal and return True for "y" or "yes", or at once for `--yes`."""
    if yes:
        return True
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _carry_out(entry: AuditEntry, progress: Progress) -> None:
    """Carry out an action on jobs, batch by batch, until it is finished or stopped.

    A worker may do batches of the same audit entry meanwhile.
    """
    while entry.finished_at is None:
        has_proceeded = auditing.proceed(SLICE, entry.pk)
        entry.refresh_from_db(using=settings().DATABASE)
        progress.advance(entry.done - progress.done)
        if not has_proceeded and entry.finished_at is None:
            time.sleep(PAUSE)


def _count(preview: Preview, wording: Wording) -> str:
    more = " or more" if preview.is_more else ""
    return f"{preview.jobs:,} {wording.jobs} {_plural(preview.jobs)}{more}"


def _plural(count: int) -> str:
    return "job" if count == 1 else "jobs"


def _preview_result(wording: Wording, preview: Preview, subject: str) -> CommandResult:
    oldest = [ids.encode(job_id) for job_id in preview.first]
    content = {"jobs": preview.jobs, "is_more": preview.is_more, "oldest": oldest, wording.done: 0}
    if not preview.jobs:
        return CommandResult(content, [f"{wording.jobs.capitalize()} jobs {subject}: none."])
    return CommandResult(
        content,
        [
            f"{_count(preview, wording)} {subject}: would be {wording.done}.",
            FactsBlock([("the oldest", StyledText("\n".join(oldest)))]),
        ],
    )


def _result(wording: Wording, entry: AuditEntry) -> CommandResult:
    content = {
        "entry": str(entry),
        wording.done: entry.done,
        "left_alone": entry.refused,
        "stopped_by": entry.stopped_by or None,
    }
    jobs = f"{entry.done:,} {wording.jobs} {_plural(entry.done)}"
    lines = [f"{jobs} {entry.subject}: {wording.done}."]
    if entry.refused:
        lines.append(
            f"{entry.refused:,} left alone: they are gone, or in a state that does not allow it."
        )
    if entry.stopped_by:
        lines.append(f"Stopped by {entry.stopped_by}: the other jobs stay.")
    lines.append(f"In the audit trail: {entry}.")
    return CommandResult(content, lines, EXIT_PROBLEM if entry.stopped_by else EXIT_OK)
