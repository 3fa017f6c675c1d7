"""Inspection of a live or archived job: its state, why it waits, and its history."""

from typing import Any

from pulljobs import ids, jobs
from pulljobs.admin.dashboard import formats
from pulljobs.conf import settings
from pulljobs.diagnosis import explain, timeline, times
from pulljobs.diagnosis.timeline import TimelineEntry
from pulljobs.errors import PulljobsError
from pulljobs.management.inspection import shared
from pulljobs.management.output_blocks import (
    Block,
    Cell,
    FactsBlock,
    StyledText,
    TableBlock,
    Tone,
    text_columns,
    title,
)
from pulljobs.management.subcommands import CommandResult
from pulljobs.models import ArchivedJob, Job, Message
from pulljobs.states import State
from pulljobs.storage.rows import JobView

TONES = {State.DELIVERED: Tone.GOOD, State.DEAD: Tone.BAD, State.INFLIGHT: Tone.WARN}


def inspect(number: int) -> CommandResult:
    """Return all facts about the job with this id, as a number, live or archived.

    Raise UnknownJob if there is none, PulljobsError if the row of its consumer is gone.
    """
    view = jobs.get(number)
    row = _row(view)
    live = row if isinstance(row, Job) else None
    reasons = explain.reasons(live) if live else []
    entries = timeline.read_timeline(number, row.message_id)
    content = {
        "kind": "job",
        **_facts(view, row),
        "reasons": [reason.content() for reason in reasons],
        "error": view.error,
        "result": view.result,
        "message": _message(row),
        "timeline": [
            {
                "at": entry.at,
                "what": str(entry.what),
                "detail": entry.detail,
                "error": entry.error,
            }
            for entry in entries
        ],
    }
    return CommandResult(content, [*_lines(content, view, row), _history(entries)])


def _row(view: JobView) -> Job | ArchivedJob:
    using = settings().DATABASE
    job = Job.objects.using(using).select_related("consumer__channel").filter(pk=view.id).first()
    if job is not None:
        return job
    rows = ArchivedJob.objects.using(using).select_related("consumer__channel")
    last = rows.filter(job_id=view.id).order_by("id").last()
    if last is None:
        raise PulljobsError(
            f"Job {ids.encode(view.id)} is {view.state}, and the row of its consumer, number "
            f"{view.consumer_id}, is gone: `pulljobs explain` says what to do."
        )
    return last


def _facts(view: JobView, row: Job | ArchivedJob) -> dict[str, Any]:
    return {
        "id": ids.encode(view.id),
        "number": str(view.id),
        "consumer": row.consumer.path,
        "state": view.state.value,
        "reason": view.reason,
        "retry_count": view.retry_count,
        "deliveries": view.deliveries,
        "cost": (row.cost or 1) if isinstance(row, Job) else None,
        "created_at": ids.time_of(view.id),
        "available_at": view.available_at,
        "claimed_at": view.claimed_at,
        "started_at": view.started_at,
        "settled_at": view.settled_at,
        "run_seconds": view.run_seconds,
        "progress": None if view.progress is None else str(view.progress),
    }


def _message(row: Job | ArchivedJob) -> dict[str, Any] | None:
    """Return the message of a job, without its payload, as JSON values, or None if deleted."""
    rows = Message.objects.using(settings().DATABASE).filter(pk=row.message_id)
    names = ("client_message_id", "key", "priority", "content_type", "headers", "published_at")
    message = rows.only(*names).first()
    if message is None:
        return None
    return {"id": ids.encode(row.message_id), **shared.field_values(message, *names)}


def _lines(content: dict[str, Any], view: JobView, row: Job | ArchivedJob) -> list[Block]:
    known = {**_facts(view, row), "retries": f"{view.retry_count} of {row.consumer.retries}"}
    del known["retry_count"], known["state"]
    state = StyledText(view.state.value, TONES.get(view.state, Tone.PLAIN))
    lines: list[Block] = [
        title(f"Job {known.pop('id')}"),
        FactsBlock([("state", state), *shared.format_facts(known)]),
    ]
    if view.error:
        error = view.error.rstrip().splitlines()
        lines += [title("Error"), *(StyledText(line, Tone.BAD) for line in error)]
    if content["reasons"]:
        lines += [title("Explanation"), *(reason["text"] for reason in content["reasons"])]
    lines.append(title("Message"))
    if content["message"] is None:
        return [*lines, "The message is deleted.", title("What happened")]
    message = {**content["message"]}
    headers = message.pop("headers")
    message["headers"] = ", ".join(f"{name}: {text}" for name, text in headers.items())
    return [*lines, FactsBlock(shared.format_facts(message)), title("What happened")]


def _history(entries: list[TimelineEntry]) -> TableBlock:
    return TableBlock(
        text_columns("at", "what", "detail"), [_entry_row(entry) for entry in entries]
    )


def _entry_row(entry: TimelineEntry) -> list[Cell]:
    detail = (
        entry.detail
        if not entry.error
        else f"{entry.detail} {shared.first_line(entry.error)}".strip()
    )
    tone = Tone.BAD if entry.error else Tone.PLAIN
    return [
        times.format_milliseconds(entry.at),
        StyledText(str(entry.what), tone),
        detail or formats.NOTHING,
    ]
