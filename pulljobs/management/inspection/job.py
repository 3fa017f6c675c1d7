"""A job, live or archived: how it stands, why it waits, and what happened to it."""

from typing import Any

from pulljobs import ids, jobs
from pulljobs.admin.dashboard import figures
from pulljobs.conf import settings
from pulljobs.diagnosis import explain, timeline, times
from pulljobs.diagnosis.timeline import TimelineEntry
from pulljobs.errors import PulljobsError
from pulljobs.management.inspection import wording
from pulljobs.management.inspection.consumer import place_of
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
    view = jobs.get(number)
    row = _row(view)
    live = row if isinstance(row, Job) else None
    reasons = explain.reasons(live) if live else []
    moments = timeline.read_timeline(number, row.message_id)
    told = {
        "kind": "job",
        **_facts(view, row),
        "reasons": [reason._asdict() for reason in reasons],
        "error": view.error,
        "result": view.result,
        "message": _message(row),
        "timeline": [
            {"at": one.at, "what": str(one.what), "detail": one.detail, "error": one.error}
            for one in moments
        ],
    }
    return CommandResult(told, [*_lines(told, view, row), _history(moments)])


def _row(view: JobView) -> Job | ArchivedJob:
    using = settings().DATABASE
    found = Job.objects.using(using).select_related("consumer__channel").filter(pk=view.id).first()
    if found is not None:
        return found
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
        "consumer": place_of(row.consumer),
        "state": view.state.value,
        "reason": view.reason,
        "retry_count": view.retry_count,
        "deliveries": view.deliveries,
        "created_at": ids.time_of(view.id),
        "available_at": view.available_at,
        "claimed_at": view.claimed_at,
        "settled_at": view.settled_at,
    }


def _message(row: Job | ArchivedJob) -> dict[str, Any] | None:
    """What it says about itself; never its payload."""
    rows = Message.objects.using(settings().DATABASE).filter(pk=row.message_id)
    wanted = ("client_message_id", "key", "priority", "content_type", "headers", "published_at")
    found = rows.only(*wanted).first()
    if found is None:
        return None
    return {"id": ids.encode(row.message_id), **wording.fields(found, *wanted)}


def _lines(told: dict[str, Any], view: JobView, row: Job | ArchivedJob) -> list[Block]:
    known = {**_facts(view, row), "retries": f"{view.retry_count} of {row.consumer.retries}"}
    del known["retry_count"], known["state"]
    state = StyledText(view.state.value, TONES.get(view.state, Tone.PLAIN))
    lines: list[Block] = [
        title(f"Job {known.pop('id')}"),
        FactsBlock([("state", state), *wording.facts(known)]),
    ]
    if view.error:
        lines += [title("Error"), StyledText(view.error.rstrip(), Tone.BAD)]
    if told["reasons"]:
        lines += [title("Why it is there"), *(reason["text"] for reason in told["reasons"])]
    lines.append(title("Message"))
    if told["message"] is None:
        return [*lines, "It is not kept any more.", title("What happened")]
    about = {**told["message"]}
    headers = about.pop("headers")
    about["headers"] = ", ".join(f"{name}: {text}" for name, text in headers.items())
    return [*lines, FactsBlock(wording.facts(about)), title("What happened")]


def _history(moments: list[TimelineEntry]) -> TableBlock:
    return TableBlock(text_columns("at", "what", "detail"), [_moment(one) for one in moments])


def _moment(one: TimelineEntry) -> list[Cell]:
    told = one.detail if not one.error else f"{one.detail} {wording.first_line(one.error)}".strip()
    tone = Tone.BAD if one.error else Tone.PLAIN
    return [
        times.format_milliseconds(one.at),
        StyledText(str(one.what), tone),
        told or figures.NOTHING,
    ]
