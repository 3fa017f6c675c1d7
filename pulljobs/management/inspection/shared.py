"""Functions that the modules of `inspect` share: reading the status, and formatting values."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import Model

from pulljobs import ids
from pulljobs.admin.dashboard import formats
from pulljobs.admin.dashboard.reading import Part
from pulljobs.diagnosis import times
from pulljobs.errors import PulljobsError
from pulljobs.management.output_blocks import (
    Block,
    StyledText,
    TableBlock,
    Tone,
    text_columns,
    title,
)
from pulljobs.management.subcommands import EXIT_OK, EXIT_PROBLEM, CommandResult
from pulljobs.management.top import tables
from pulljobs.management.top.frame import ConsumerSelector, TopFrame, read_frame
from pulljobs.states import reason_words
from pulljobs.storage.dead import Dead

CONSUMER_PARTS: Final = (Part.CONSUMERS, Part.WORKERS, Part.THROUGHPUT)
NODE_PARTS: Final = (Part.WORKERS,)
UNKNOWN: Final = "not known"
MAX_LISTED: Final = 200
"""Maximum number of rows in a list."""
MAX_FAILURES: Final = 5
MAX_ERROR_CHARS: Final = 120


def read_status(
    parts: Collection[Part], select_consumers: ConsumerSelector | None = None
) -> TopFrame:
    """Read the status of consumers and nodes, as `pulljobs top` does at each interval.

    `parts` are those that the caller needs, such as nodes. Raise `PulljobsError` if the database
    cannot be reached, or refuses to read one of them. Those that took too long are in `missed`.
    Failures of other parts are ignored.
    """
    frame = read_frame(select_consumers)
    refused = {part: reason for part, reason in frame.refused.items() if part in parts}
    frame = replace(frame, missed=[part for part in frame.missed if part in parts], refused=refused)
    if frame.error:
        raise PulljobsError(f"The database fails: {frame.error}")
    return frame


def status_result(
    frame: TopFrame, content: dict[str, Any], lines: Sequence[Block]
) -> CommandResult:
    """Return a result with these lines, and with the parts of the status that could not be read.

    The exit code is 1 if there are such parts.
    """
    content = {**content, "missed": [part.value for part in frame.missed]}
    exit_code = EXIT_PROBLEM if frame.missed else EXIT_OK
    return CommandResult(content, [*lines, *tables.render_missed(frame)], exit_code)


def format_time(at: datetime | None) -> str:
    """Format a time, or return a dash for None."""
    return formats.NOTHING if at is None else times.format_time(at)


def format_value(value: Any) -> str:
    """Format the value of a model's field for people, for example False as "no"."""
    if value is None or value == "":
        return formats.NOTHING
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, timedelta):
        return formats.duration(value.total_seconds())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def field_values(row: Model, *names: str) -> dict[str, Any]:
    """Return the values of these fields by name. A foreign key gives the name of its row."""
    values = {name: getattr(row, name) for name in names}
    return {
        name: str(value) if isinstance(value, Model) else value for name, value in values.items()
    }


def format_facts(values: dict[str, Any]) -> list[tuple[str, StyledText]]:
    """Format the values of fields as rows of a FactsBlock."""
    return [
        (name.replace("_", " "), StyledText(format_value(value))) for name, value in values.items()
    ]


def first_line(error: str | None) -> str:
    """Return the first line of an error text, at most 120 characters of it."""
    return (error or "").strip().partition("\n")[0][:MAX_ERROR_CHARS]


def render_failures(failures: list[tuple[str, Dead]]) -> list[Block]:
    """Render dead jobs, given as (path of the consumer, job), as a table with a title."""
    rows = [
        [ids.encode(job.id), path, reason_words(job.reason), first_line(job.error)]
        for path, job in failures
    ]
    columns = text_columns("job", "consumer", "died of", "error")
    return [title("Newest dead jobs"), TableBlock(columns, rows, "No job is dead.")]


def failures_content(failures: list[tuple[str, Dead]]) -> list[dict[str, Any]]:
    """Return dead jobs, given as (path of the consumer, job), as JSON values."""
    return [
        {"job": ids.encode(job.id), "consumer": path, "reason": job.reason, "error": job.error}
        for path, job in failures
    ]


def tone_of(is_healthy: bool) -> Tone:
    """Return the tone in which a status is shown: good if it is healthy, else bad."""
    return Tone.GOOD if is_healthy else Tone.BAD
