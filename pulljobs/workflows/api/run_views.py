"""Routes of runs: find by message, show, send a signal, send the signal of a one-time token."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs import ids
from pulljobs.api import exceptions, raw_bodies
from pulljobs.api.authentication import user_name
from pulljobs.api.base_views import ProblemMixin, ProtocolView, UserView, channel_of
from pulljobs.api.bodies import render_time
from pulljobs.api.permissions import is_permitted
from pulljobs.conf import settings
from pulljobs.errors import RunEnded, UnknownJob, UnknownRun, WorkflowError
from pulljobs.storage import published
from pulljobs.workflows import acting, reading, signal_tokens
from pulljobs.workflows.api.run_bodies import (
    FoundRunBody,
    FoundRunsBody,
    RunBody,
    SignalBody,
    StepBody,
)
from pulljobs.workflows.models import WorkflowRun
from pulljobs.workflows.reading import RunView, StepView

TOKEN_HEADER: Final = "Pulljobs-Signal-Token"
VIEW: Final = "pulljobs_workflows.view_workflowrun"
SIGNAL: Final = "pulljobs_workflows.signal_workflowrun"
STATUSES: Final[Mapping[type[Exception], int]] = {
    UnknownRun: 404,
    UnknownJob: 404,
    RunEnded: 409,
    WorkflowError: 403,
    ValueError: 400,
    TypeError: 400,
}


@contextmanager
def refusing() -> Iterator[None]:
    """Turn an error of the block, such as UnknownRun, into an HTTP error with its text."""
    try:
        yield
    except tuple(STATUSES) as error:
        status = next(code for kind, code in STATUSES.items() if isinstance(error, kind))
        raise exceptions.refused(status, error) from error


class MessageRuns(ProblemMixin, UserView):
    """View that lists the jobs of a message, with the workflows of those that are runs."""

    needs = {"GET": [VIEW]}

    def get(self, request: Request) -> Response:
        using, query = settings().DATABASE, request.query_params
        channel = channel_of({"channel": query.get("channel", "")})
        message = published.find(using, channel.pk, query.get("message", ""))
        if message is None:
            raise exceptions.unknown_message()
        jobs = published.read_jobs(using, message.pk)
        rows = WorkflowRun.objects.using(using).in_bulk([job.job_id for job in jobs])
        body: FoundRunsBody = {"Result": [_render_found(job, rows.get(job.job_id)) for job in jobs]}
        return Response(body)


class RunPage(ProblemMixin, UserView):
    needs = {"GET": [VIEW]}

    def get(self, request: Request, run: str) -> Response:
        with refusing():
            view = reading.get(run)
        return Response(
            render_run(view, with_result=is_permitted(request, "pulljobs.view_message"))
        )


class SendSignal(ProblemMixin, UserView):
    needs = {"POST": [SIGNAL]}

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuse forms that a page of another site posts with the user's login."""
        super().initial(request, *args, **kwargs)
        raw_bodies.refuse_foreign_form(request)

    def post(self, request: Request, run: str, signal: str) -> Response:
        dedupe_id = request.query_params.get("dedupe_id")
        with refusing():
            payload = read_payload(request)
            is_sent = acting.signal(
                run, signal, payload, dedupe_id=dedupe_id, by=user_name(request)
            )
        body: SignalBody = {"Sent": is_sent}
        return Response(body)


class SendSignalByToken(ProblemMixin, ProtocolView):
    """View for anyone with a one-time token, which is the only authentication."""

    authentication_classes = []

    def post(self, request: Request) -> Response:
        with refusing():
            payload = read_payload(request)
            is_sent = signal_tokens.send(request.headers.get(TOKEN_HEADER, ""), payload)
        body: SignalBody = {"Sent": is_sent}
        return Response(body)


def read_payload(request: Request) -> Any:
    """Return the body parsed as JSON, or None if it is empty. Raise ValueError if it is no JSON."""
    sent = raw_bodies.read_decompressed(request._request, settings().MAX_RESULT_BYTES)
    if not sent.strip():
        return None
    try:
        return json.loads(sent)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"The body must be JSON: {error}.") from error


def _render_found(job: published.MessageJob, run: WorkflowRun | None) -> FoundRunBody:
    return {
        "ID": ids.encode(job.job_id),
        "Consumer": job.consumer.name,
        "State": job.state,
        "Workflow": None if run is None else run.workflow,
    }


def render_run(view: RunView, *, with_result: bool) -> RunBody:
    """Return the response body for a run, with its result only if `with_result` is set."""
    job, result = view.job, None
    if with_result and job.result is not None:
        result = json.dumps(job.result, ensure_ascii=False)
    return {
        "ID": view.id,
        "Workflow": view.row.workflow,
        "Version": view.row.version,
        "State": job.state.value,
        "WaitsFor": view.waits_for,
        "AvailableAt": render_time(job.available_at) if job.available_at else None,
        "Error": job.error,
        "Progress": None if job.progress is None else str(job.progress),
        "Steps": [_render_step(step) for step in view.steps],
        "Result": result,
    }


def _render_step(step: StepView) -> StepBody:
    row = step.row
    return {
        "Name": row.name,
        "Number": row.number,
        "Kind": row.kind,
        "StartedAt": render_time(row.started_at),
        "EndedAt": render_time(step.ended_at) if step.ended_at else None,
        "DueAt": render_time(row.due_at) if row.due_at else None,
        "Failure": step.failure,
        "Children": [ids.encode(id) for id in row.children or []],
    }
