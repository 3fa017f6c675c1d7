"""Views of the HTTP API of schedules."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from django.db import transaction
from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs.api import exceptions, raw_bodies
from pulljobs.api.authentication import user_name
from pulljobs.api.base_views import ProblemMixin, UserView
from pulljobs.api.bodies import parse_time, render_time
from pulljobs.api.broker.links import link_here, read_limit
from pulljobs.api.broker.registry import LAST_MODIFIED, check_precondition, render_http_date
from pulljobs.api.permissions import Needs, is_permitted
from pulljobs.api.reading import read_body
from pulljobs.conf import settings
from pulljobs.errors import (
    InvalidSchedule,
    KeyFull,
    PayloadTooLarge,
    PublishError,
    ScheduleExists,
    UnknownChannel,
    UnknownSchedule,
)
from pulljobs.schedules import acting, editing, reading
from pulljobs.schedules.api.bodies import (
    BackfillBody,
    BackfilledBody,
    ScheduleFormBody,
    ScheduleItemBody,
    SchedulePauseBody,
    SchedulesBody,
    SlotsBody,
)
from pulljobs.schedules.api.rendering import (
    read_options,
    render_item,
    render_schedule,
    render_slot,
)
from pulljobs.schedules.definitions import Definition
from pulljobs.schedules.models import Schedule, Slot
from pulljobs.storage import nodes

PAGE: Final = 100
LARGEST_BODY: Final = 1024
VIEW: Final = "pulljobs_schedules.view_schedule"
WRITE: Final = ["pulljobs_schedules.add_schedule", "pulljobs_schedules.change_schedule"]
PAUSE: Final[Needs] = {"POST": ["pulljobs_schedules.pause_schedule"]}
FIRE: Final[Needs] = {"POST": ["pulljobs_schedules.fire_schedule"]}
STATUSES: Final[Mapping[type[Exception], int]] = {
    UnknownSchedule: 404,
    PayloadTooLarge: 413,
    ScheduleExists: 409,
    UnknownChannel: 409,
    KeyFull: 409,
    InvalidSchedule: 400,
    PublishError: 400,
}
"""HTTP status by the class of an error. The first class that the error has counts."""


@contextmanager
def refusing() -> Iterator[None]:
    """Turn an error of the block into an HTTP error, such as 404 for UnknownSchedule."""
    try:
        yield
    except tuple(STATUSES) as error:
        status = next(code for kind, code in STATUSES.items() if isinstance(error, kind))
        raise exceptions.refused(status, error) from error


class ScheduleUserView(ProblemMixin, UserView):
    """Base of the views. It refuses a POST that a form of another site could send (CSRF)."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if request.method == "POST":
            raw_bodies.refuse_foreign_form(request)


class Schedules(ScheduleUserView):
    needs = {"GET": [VIEW]}

    def get(self, request: Request) -> Response:
        using = settings().DATABASE
        rows = Schedule.objects.using(using).defer("payload", "headers").order_by("name")
        query = {name: request.query_params.get(name, "") for name in ("channel", "after")}
        if "\x00" in "".join(query.values()):
            raise exceptions.bad_field("channel and after must be printable text.")
        if query["channel"]:
            rows = rows.filter(channel_name=query["channel"])
        page = list(rows.filter(name__gt=query["after"])[: PAGE + 1])
        now = nodes.clock(using)
        items: list[ScheduleItemBody] = [render_item(row, now) for row in page[:PAGE]]
        following = {**query, "after": page[PAGE - 1].name} if len(page) > PAGE else None
        body: SchedulesBody = {"Result": items, "Next": _link(request, following)}
        return Response(body)


class ScheduleView(ScheduleUserView):
    needs = {"GET": [VIEW], "PUT": WRITE, "DELETE": ["pulljobs_schedules.delete_schedule"]}

    def get(self, request: Request, schedule: str) -> Response:
        return _show(request, schedule)

    def put(self, request: Request, schedule: str) -> Response:
        """Create a schedule, or replace the options of an existing one.

        For an existing one, If-Unmodified-Since must be the Last-Modified of its newest version.
        """
        sent = raw_bodies.read_decompressed(request._request, settings().MAX_BATCH_BYTES)
        options = read_options(read_body(ScheduleFormBody, sent))
        with refusing():
            _put(request, schedule, options)
        return _show(request, schedule)

    def delete(self, request: Request, schedule: str) -> Response:
        """Delete a schedule if If-Unmodified-Since is the Last-Modified of its newest version."""
        using = settings().DATABASE
        with refusing(), transaction.atomic(using=using):
            check_precondition(request, editing.lock(using, schedule))
            acting.delete(schedule, by=user_name(request))
        return Response(status=204)


class PauseSchedule(ScheduleUserView):
    needs = PAUSE

    def post(self, request: Request, schedule: str) -> Response:
        given = read_body(SchedulePauseBody, _read_small(request)).get("Until")
        until = None if given is None else parse_time(given)
        with refusing():
            try:
                acting.pause(schedule, until, by=user_name(request))
            except ValueError as error:
                raise exceptions.refused(400, error) from error
        return _show_item(schedule)


class ResumeSchedule(ScheduleUserView):
    needs = PAUSE

    def post(self, request: Request, schedule: str) -> Response:
        with refusing():
            acting.resume(schedule, by=user_name(request))
        return _show_item(schedule)


class FireSchedule(ScheduleUserView):
    needs = FIRE

    def post(self, request: Request, schedule: str) -> Response:
        with refusing():
            slot = acting.fire_now(schedule, by=user_name(request))
        return Response(render_slot(slot))


class BackfillSchedule(ScheduleUserView):
    needs = FIRE

    def post(self, request: Request, schedule: str) -> Response:
        window = read_body(BackfillBody, _read_small(request))
        start, end = parse_time(window["From"]), parse_time(window["To"])
        with refusing():
            slots = acting.backfill(schedule, start, end, by=user_name(request))
        body: BackfilledBody = {"Result": [render_slot(slot) for slot in slots]}
        return Response(body)


class ScheduleSlots(ScheduleUserView):
    """View of the history: records of fired and skipped slots, the newest first."""

    needs = {"GET": [VIEW]}

    def get(self, request: Request, schedule: str) -> Response:
        rows = Slot.objects.using(settings().DATABASE).filter(schedule_id=_find(schedule).pk)
        if before := request.query_params.get("before"):
            try:
                rows = rows.filter(slot_at__lt=parse_time(before))
            except ValueError as error:
                raise exceptions.bad_field(f"before: {error}") from error
        limit = read_limit(request, PAGE)
        listed = list(rows.order_by("-slot_at")[: limit + 1])
        page, rest = listed[:limit], listed[limit:]
        following = None
        if page and rest:
            following = {"limit": str(limit), "before": render_time(page[-1].slot_at)}
        slots = [render_slot(slot) for slot in page]
        body: SlotsBody = {"Result": slots, "Next": _link(request, following)}
        return Response(body)


def _find(name: str) -> Schedule:
    with refusing():
        return reading.find(name)


def _show(request: Request, name: str) -> Response:
    row, now = _find(name), nodes.clock(settings().DATABASE)
    with_message = is_permitted(request, "pulljobs.view_message")
    body = render_schedule(row, now, with_message=with_message)
    return Response(body, headers={LAST_MODIFIED: render_http_date(row.changed_at)})


def _show_item(name: str) -> Response:
    return Response(render_item(_find(name), nodes.clock(settings().DATABASE)))


def _put(request: Request, name: str, options: dict[str, Any]) -> None:
    using = settings().DATABASE
    with transaction.atomic(using=using):
        try:
            row = editing.lock(using, name)
        except UnknownSchedule:
            acting.create(name, by=user_name(request), **options)
            return
        check_precondition(request, row)
        is_same_interval = row.every is not None and options["every"] == row.every
        if is_same_interval and options["starts_at"] is None:
            options["starts_at"] = row.starts_at  # The interval keeps its start.
        changes = _find_changes(row, options)
        acting.update(name, by=user_name(request), **changes)


def _find_changes(row: Schedule, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that differ from the row, and always payload and content type."""
    current = Definition.from_row(row)
    return {
        name: value
        for name, value in options.items()
        if name in ("payload", "content_type") or getattr(current, name) != value
    }


def _link(request: Request, query: Mapping[str, str] | None) -> str | None:
    if query is None:
        return None
    given = {name: text for name, text in query.items() if text}
    return link_here(request, dict(given))


def _read_small(request: Request) -> bytes:
    return raw_bodies.read_decompressed(request._request, LARGEST_BODY)
