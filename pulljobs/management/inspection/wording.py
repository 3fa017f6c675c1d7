"""Values as this command words them."""

from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models import Model

from pulljobs import ids
from pulljobs.admin.dashboard import figures
from pulljobs.diagnosis import times
from pulljobs.management.output_blocks import (
    Block,
    StyledText,
    TableBlock,
    Tone,
    text_columns,
    title,
)
from pulljobs.storage.dead import Dead

LISTED: Final = 200
"""Of a list without a name."""
FAILURES: Final = 5
SHOWN_CHARS: Final = 120


def moment(at: datetime | None) -> str:
    return figures.NOTHING if at is None else times.format_time(at)


def value(said: Any) -> str:
    if said is None or said == "":
        return figures.NOTHING
    if isinstance(said, datetime):
        return moment(said)
    if isinstance(said, timedelta):
        return figures.duration(said.total_seconds())
    if isinstance(said, bool):
        return "yes" if said else "no"
    return f"{said:,}" if isinstance(said, int) else str(said)


def fields(row: Model, *wanted: str) -> dict[str, Any]:
    """Of a row, by name."""
    return {name: getattr(row, name) for name in wanted}


def facts(told: dict[str, Any]) -> list[tuple[str, StyledText]]:
    return [(name.replace("_", " "), StyledText(value(said))) for name, said in told.items()]


def first_line(error: str | None) -> str:
    return (error or "").strip().partition("\n")[0][:SHOWN_CHARS]


def failures(found: list[tuple[str, Dead]]) -> list[Block]:
    """The newest dead jobs, each with its consumer."""
    rows = [
        [ids.encode(job.id), place, job.reason.replace("_", " "), first_line(job.error)]
        for place, job in found
    ]
    shown = TableBlock(text_columns("job", "consumer", "died of", "error"), rows, "No job is dead.")
    return [title("Newest dead jobs"), shown]


def failures_content(found: list[tuple[str, Dead]]) -> list[dict[str, Any]]:
    return [
        {"job": ids.encode(job.id), "consumer": place, "reason": job.reason, "error": job.error}
        for place, job in found
    ]


def tone(is_well: bool) -> Tone:
    return Tone.GOOD if is_well else Tone.BAD
