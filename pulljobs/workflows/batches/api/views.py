"""Routes of batches: list, create, show, add members, close, cancel, redrive."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs import ids
from pulljobs.api import exceptions, raw_bodies
from pulljobs.api.authentication import user_name
from pulljobs.api.base_views import ProblemMixin, UserView
from pulljobs.api.broker.links import link_here
from pulljobs.api.reading import read_body
from pulljobs.conf import settings
from pulljobs.errors import (
    BatchEnded,
    KeyFull,
    PayloadTooLarge,
    PublishError,
    UnknownBatch,
    UnknownChannel,
)
from pulljobs.workflows.batches import adding, auditing, reading
from pulljobs.workflows.batches.api.bodies import (
    AddedMembersBody,
    BatchDetailBody,
    BatchesBody,
    BatchFormBody,
    CancelledBatchBody,
    MembersFormBody,
    RedrivenBatchBody,
)
from pulljobs.workflows.batches.api.rendering import (
    read_callback,
    read_member,
    render_batch,
    render_dead,
)
from pulljobs.workflows.models import Batch

PAGE: Final = 100
VIEW: Final = "pulljobs_workflows.view_batch"
ADD: Final = "pulljobs_workflows.add_batch"
STATUSES: Final[Mapping[type[Exception], int]] = {
    BatchEnded: 409,
    PayloadTooLarge: 413,
    UnknownChannel: 409,
    KeyFull: 409,
    PublishError: 400,
}
"""Status by the class of an error. The first that fits counts."""


@contextmanager
def refusing(batch: str | None = None) -> Iterator[None]:
    """Turn an error of the block, such as BatchEnded, into an HTTP error with its text.

    `batch` is the id in the request, which the text names if there is no such batch.
    """
    try:
        yield
    except UnknownBatch as error:
        raise _unknown(batch) from error
    except tuple(STATUSES) as error:
        status = next(code for kind, code in STATUSES.items() if isinstance(error, kind))
        raise exceptions.refused(status, error) from error


class BatchUserView(ProblemMixin, UserView):
    """Base of the views of batches. It refuses POSTs of forms that are on pages of other sites."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if request.method == "POST":
            raw_bodies.refuse_foreign_form(request)


class BatchList(BatchUserView):
    needs = {"GET": [VIEW], "POST": [ADD]}

    def get(self, request: Request) -> Response:
        """Return a page of the list of batches, newest first."""
        query = {name: request.query_params.get(name, "") for name in ("name", "before")}
        if "\x00" in query["name"]:
            raise exceptions.bad_field("name must be printable text.")
        rows = Batch.objects.using(settings().DATABASE).order_by("-id")
        if query["name"]:
            rows = rows.filter(name=query["name"])
        if query["before"]:
            rows = rows.filter(id__lt=_read_before(query["before"]))
        page = list(rows.values_list("id", flat=True)[: PAGE + 1])
        views = reading.read_views(page[:PAGE])[::-1]
        following = {**query, "before": ids.encode(page[PAGE - 1])} if len(page) > PAGE else None
        link = None if following is None else _link(request, following)
        body: BatchesBody = {"Result": list(map(render_batch, views)), "Next": link}
        return Response(body)

    def post(self, request: Request) -> Response:
        """Create a batch."""
        form = read_body(BatchFormBody, _read(request))
        parent = form.get("Parent")
        with refusing(parent):
            made = adding.create(
                form["Name"],
                on_complete=read_callback(form.get("OnComplete")),
                on_success=read_callback(form.get("OnSuccess")),
                on_dead=read_callback(form.get("OnDead")),
                parent=None if parent is None else adding.extend(_number_of(parent)),
            )
        return Response(render_batch(reading.get(made.id)), status=201)


class BatchDetail(BatchUserView):
    needs = {"GET": [VIEW]}

    def get(self, request: Request, batch: str) -> Response:
        with refusing(batch):
            view = reading.get(_number_of(batch))
        dead = [render_dead(member) for member in view.dead_members()]
        body: BatchDetailBody = {**render_batch(view), "DeadMembers": dead}
        return Response(body)


class BatchMembers(BatchUserView):
    needs = {"POST": [ADD]}

    def post(self, request: Request, batch: str) -> Response:
        """Publish messages into a batch. Answer with the numbers of jobs, duplicates, full keys."""
        form = read_body(MembersFormBody, _read(request))
        drafts = list(map(read_member, form["Messages"]))
        with refusing(batch):
            receipts = adding.extend(_number_of(batch)).publish_many(form["Channel"], drafts)
        body: AddedMembersBody = {
            "Members": sum(len(each.job_ids) - len(each.replaced) for each in receipts),
            "Duplicates": sum(each.duplicate for each in receipts),
            "FullKeys": sum(each.key_full for each in receipts),
        }
        return Response(body)


class CloseBatch(BatchUserView):
    needs = {"POST": [ADD]}

    def post(self, request: Request, batch: str) -> Response:
        number = _number_of(batch)
        with refusing(batch):
            auditing.close(number, by=user_name(request))
            return Response(render_batch(reading.get(number)))


class CancelBatch(BatchUserView):
    needs = {"POST": ["pulljobs_workflows.cancel_batch"]}

    def post(self, request: Request, batch: str) -> Response:
        with refusing(batch):
            killed = auditing.cancel(_number_of(batch), by=user_name(request))
        body: CancelledBatchBody = {"Killed": killed}
        return Response(body)


class RedriveBatch(BatchUserView):
    needs = {"POST": ["pulljobs_workflows.redrive_batch"]}

    def post(self, request: Request, batch: str) -> Response:
        with refusing(batch):
            redriven = auditing.redrive(_number_of(batch), by=user_name(request))
        body: RedrivenBatchBody = {"Redriven": redriven}
        return Response(body)


def _number_of(text: str) -> int:
    """Return the id of a batch as a number. Answer 404 for a text that is no id."""
    try:
        return ids.decode(text)
    except ValueError as error:
        raise _unknown(text) from error


def _unknown(batch: str | None) -> exceptions.RefusedRequest:
    return exceptions.RefusedRequest(
        404, f"There is no batch {batch!r}: GET the list of batches, or check the id."
    )


def _read_before(text: str) -> int:
    try:
        return ids.decode(text)
    except ValueError as error:
        raise exceptions.bad_field(f"before: {error}") from error


def _link(request: Request, query: Mapping[str, str]) -> str:
    given = {name: text for name, text in query.items() if text}
    return link_here(request, dict(given))


def _read(request: Request) -> bytes:
    return raw_bodies.read_decompressed(request._request, settings().MAX_BATCH_BYTES)
