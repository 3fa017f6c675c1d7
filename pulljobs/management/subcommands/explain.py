"""Show why a job is not claimed, and how many jobs come before it."""

from argparse import ArgumentParser
from typing import Any

from pulljobs import ids, jobs
from pulljobs.conf import settings
from pulljobs.diagnosis import explain, times
from pulljobs.diagnosis.wait_reasons import WaitReason
from pulljobs.management.output_blocks import Block, StyledText, title
from pulljobs.management.subcommands import CommandResult
from pulljobs.models import Job
from pulljobs.states import SETTLED


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "job", metavar="JOB", help="id of the job, as a number or as the API shows it"
    )


def handle(**options: Any) -> CommandResult:
    number = explain.parse_job_id(options["job"])
    rows = Job.objects.using(settings().DATABASE).select_related("consumer__channel")
    job = rows.filter(pk=number).first()
    return _explain_settled(number) if job is None else _explain_live(job)


def _explain_live(job: Job) -> CommandResult:
    reasons, position = explain.reasons(job), explain.position(job)
    earliest = explain.earliest(reasons)
    content = {
        "job": job.pk,
        "id": ids.encode(job.pk),
        "consumer": job.consumer.path,
        "state": job.state,
        "position": position.before if position else None,
        "position_is_least": position.is_least if position else None,
        "earliest": earliest,
        "reasons": [reason.content() for reason in reasons],
    }
    lines: list[Block] = [title(f"Job {content['id']} of {content['consumer']} is {job.state}.")]
    if position is not None:
        lines.append(StyledText(position.text))
    lines += [reason.text for reason in reasons]
    if earliest is not None and len(reasons) > 1:
        lines.append(f"So nothing claims it before {times.format_milliseconds(earliest)}.")
    return CommandResult(content, lines)


def _explain_settled(number: int) -> CommandResult:
    view = jobs.get(number)
    if view.state in SETTLED and view.settled_at:
        text = f"It was {view.state} at {view.settled_at:%Y-%m-%d %H:%M:%S %Z}."
        reason = WaitReason("settled", text)
    else:
        reason = explain.describe_stray(number, view.consumer_id)
    content = {
        "job": number,
        "id": ids.encode(number),
        "state": view.state,
        "position": None,
        "position_is_least": None,
        "earliest": None,
        "reasons": [reason.content()],
    }
    return CommandResult(content, [reason.text])
