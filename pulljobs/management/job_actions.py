"""Common part of the verbs that act on many jobs, such as `kill` and `redrive`.

It has their arguments, the preview, the confirmation, and the action in batches with its audit
entry.
"""

import os
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable
from datetime import timedelta
from getpass import getuser
from typing import Any, Final, NamedTuple

from pulljobs import auditing, ids
from pulljobs.auditing import Preview
from pulljobs.conf import settings
from pulljobs.errors import ConfigurationError
from pulljobs.management import lookups
from pulljobs.management.inspection.consumer import path_of
from pulljobs.management.output_blocks import FactsBlock, StyledText
from pulljobs.management.parsing import parse_duration
from pulljobs.management.subcommands import EXIT_OK, EXIT_PROBLEM, CommandResult
from pulljobs.models import AuditEntry
from pulljobs.progress import Progress, show_progress
from pulljobs.states import TRANSITIONS, Event, Reason, State
from pulljobs.storage import nodes
from pulljobs.storage.selecting import Selection

SLICE: Final = 1.0
"""Seconds of work between two reports of the progress."""
PAUSE: Final = 0.1
"""Seconds to wait while a worker carries out the action."""


class Wording(NamedTuple):
    """Words for an action on jobs, as in "redrive", "redriven", "dead"."""

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
    add_filters(parser, has_reason=State.DEAD in TRANSITIONS[event].sources)
    add_confirmation(parser, verb)


def add_filters(parser: ArgumentParser, *, has_reason: bool) -> None:
    """Add the filters by consumer, key and age to a parser, and by the reason of death if asked."""
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="CHANNEL[/CONSUMER]", help="only their jobs"
    )
    parser.add_argument("--key", help="only jobs with this key")
    for flag, meaning in (("--older-than", "or earlier"), ("--newer-than", "or later")):
        parser.add_argument(
            flag,
            type=parse_duration,
            metavar="TIME",
            help=f"only jobs created that long ago {meaning}, such as 30d",
        )
    if has_reason:
        parser.add_argument(
            "--reason", choices=[reason.value for reason in Reason], metavar="REASON",
            help=f"only jobs that died of this: {', '.join(Reason)}",
        )  # fmt: skip


def add_confirmation(parser: ArgumentParser, verb: str) -> None:
    """Add the flags `--dry-run` (preview) and `--yes` (no confirmation) to a parser."""
    parser.add_argument(
        "--dry-run", action="store_true", help="show the jobs that are meant, and change nothing"
    )
    parser.add_argument("--yes", action="store_true", help=f"{verb} without a confirmation")


def run(event: Event, options: dict[str, Any]) -> CommandResult:
    """Act on the jobs that the options select, after a preview and the operator's confirmation.

    `event` is the action. The jobs are changed in batches, with an entry in the audit trail.
    """
    selection, subject = select(options, tuple(sorted(TRANSITIONS[event].sources)))
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


def select(options: dict[str, Any], states: tuple[str, ...]) -> tuple[Selection, str]:
    """Return the selection that the options make among jobs in `states`, and words for it.

    Raises ConfigurationError for an unknown name, for ids combined with filters, and if neither ids
    nor filters nor `--all` are given.
    """
    if given := options.get("jobs"):
        return _chosen(options, given)
    consumers = lookups.find_consumers(options["only"])
    if options["only"] and not consumers:
        raise ConfigurationError("These channels have no consumers.")
    filters = {
        name: FILTERS[name](options[name])
        for name in FILTERS
        if options.get(name) not in (None, [])
    }
    if not (consumers or filters or options.get("all", True)):
        raise ConfigurationError("Name jobs or a filter, or use --all for all consumers.")
    selection = Selection(states=states)
    if consumers:
        selection = selection._replace(consumer_ids=tuple(row.pk for row in consumers))
    for change, _text in filters.values():
        selection = selection._replace(**change)
    of = f"of {', '.join(map(path_of, consumers))}" if consumers else "of all consumers"
    return selection, " ".join([of, *(text for _change, text in filters.values())])


FILTERS: Final[dict[str, Callable[[Any], tuple[dict[str, Any], str]]]] = {
    "state": lambda states: ({"states": tuple(states)}, f"that are {' or '.join(states)}"),
    "reason": lambda reason: ({"reason": reason}, f"that died of {reason}"),
    "key": lambda key: ({"key": key}, f"with the key {key}"),
    "older_than": lambda age: ({"last": _id_at(age)}, f"older than {age}"),
    "newer_than": lambda age: ({"first": _id_at(age)}, f"newer than {age}"),
}
"""Fields of the selection and words for the description, by the name of an option."""


def _chosen(options: dict[str, Any], given: list[str]) -> tuple[Selection, str]:
    if any(options.get(name) for name in (*FILTERS, "only", "all")):
        raise ConfigurationError("Ids of jobs and filters can't be combined.")
    try:
        among = tuple(sorted({ids.number_of(text) for text in given}))
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    more = " ..." if among[3:] else ""
    return Selection(among=among), f"by id: {', '.join(map(ids.encode, among[:3]))}{more}"


def operator_name() -> str:
    """Return the name of the operating system's user of this process, for the audit trail."""
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


def _id_at(age: timedelta) -> int:
    return ids.first_of(nodes.clock(settings().DATABASE) - age)


def _count(preview: Preview, wording: Wording) -> str:
    more = " or more" if preview.is_more else ""
    return f"{preview.jobs:,} {wording.jobs} {_plural(preview.jobs)}{more}"


def _plural(count: int) -> str:
    return "job" if count == 1 else "jobs"


def _preview_result(wording: Wording, preview: Preview, subject: str) -> CommandResult:
    oldest = [ids.encode(job_id) for job_id in preview.first]
    content = {"jobs": preview.jobs, "is_more": preview.is_more, "oldest": oldest, wording.done: 0}
    if not preview.jobs:
        return CommandResult(content, [f"There are no {wording.jobs} jobs {subject}."])
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
        lines.append(f"{entry.refused:,} left alone: their state did not allow it.")
    if entry.stopped_by:
        lines.append(f"Stopped by {entry.stopped_by}: the other jobs stay.")
    lines.append(f"In the audit trail: {entry}.")
    return CommandResult(content, lines, EXIT_PROBLEM if entry.stopped_by else EXIT_OK)
