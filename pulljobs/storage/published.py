"""Queries on published messages, by id or newest first, and on the states of their jobs."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final, NamedTuple

from django.db.models import Max, QuerySet

from pulljobs.ids import decode, time_of
from pulljobs.models import ArchivedJob, Consumer, Job, Lease, Message, Publication
from pulljobs.states import State
from pulljobs.storage.pages import Cut, newest_first

CAP: Final = 10_000
NUL: Final = "\x00"
"""NUL character, which PostgreSQL cannot store."""
HEAD: Final = ("id", "channel_id", "client_message_id", "published_at")


class MessageJob(NamedTuple):
    """State of one job, which handles a message for one consumer, and the time of that state."""

    job_id: int
    message_id: int
    consumer: Consumer
    state: State
    since: datetime


def find(using: str, channel_id: int, name: str) -> Message | None:
    """Return the newest message with the client message id `name`, or None.

    A message without a client message id is found by its own id, in the form of 20 characters.
    """
    if NUL in name:
        return None
    taken = Publication.objects.using(using).filter(channel_id=channel_id, client_message_id=name)
    id = taken.values_list("message_id", flat=True).first()
    rows = Message.objects.using(using).select_related("producer").filter(channel_id=channel_id)
    if id is not None:
        return rows.filter(pk=id).first()
    try:
        return rows.filter(pk=decode(name), client_message_id=None).first()
    except ValueError:
        return None


def page(using: str, channel_id: int, cut: Cut) -> list[Message]:
    """Return a page of a channel's messages, newest first, without payloads and headers."""
    return newest_first(_of_channel(using, channel_id), cut)


def count(using: str, channel_id: int) -> int:
    """Return the number of messages of a channel, or CAP + 1 if there are more than CAP."""
    return _of_channel(using, channel_id).order_by("-id")[: CAP + 1].count()


def heads(using: str, message_ids: list[int]) -> dict[int, Message]:
    """Return messages by id, with their producers, but without payloads and headers."""
    rows = Message.objects.using(using).select_related("producer")
    head = rows.only(*HEAD, "producer__name")
    if not message_ids:
        return {}
    # The bounds limit the query to the partitions of those days.
    messages = head.filter(pk__in=message_ids, pk__gte=min(message_ids), pk__lte=max(message_ids))
    return {message.pk: message for message in messages}


def dead(using: str, consumer: Consumer, cut: Cut) -> list[MessageJob]:
    """Return a page of a consumer's DEAD jobs, newest first. Their times are those of death."""
    rows = Job.objects.using(using).filter(consumer_id=consumer.pk, reason__isnull=False)
    return _make_jobs(using, newest_first(rows, cut), [])


def read_jobs(using: str, message_id: int) -> list[MessageJob]:
    """Return the states of a message's jobs in the order of consumer ids, without deleted jobs."""
    live = list(Job.objects.using(using).filter(message_id=message_id))
    # Read after the live jobs: a job that is delivered in between is in one of the two.
    archive = ArchivedJob.objects.using(using).exclude(job_id__in=[job.id for job in live])
    delivered = archive.filter(message_id=message_id, state=State.DELIVERED)
    return sorted(_make_jobs(using, live, list(delivered)), key=lambda job: job.consumer.pk)


def read_job(using: str, job_id: int) -> MessageJob | None:
    """Return the state of a job that is live or DELIVERED, or None for another id."""
    live = list(Job.objects.using(using).filter(id=job_id))
    archive = ArchivedJob.objects.using(using).filter(job_id=job_id, state=State.DELIVERED)
    return next(iter(_make_jobs(using, live, [] if live else list(archive))), None)


def _make_jobs(using: str, live: list[Job], delivered: list[ArchivedJob]) -> list[MessageJob]:
    """Return the states of live and delivered jobs, except those whose consumer has no row."""
    rows = Consumer.objects.using(using).select_related("channel")
    ids = {job.consumer_id for job in live} | {settlement.consumer_id for settlement in delivered}
    consumers = rows.in_bulk(ids)
    since = changed_at(using, live)
    not_delivered = [
        MessageJob(
            job.id, job.message_id, consumers[job.consumer_id], State(job.state), since[job.id]
        )
        for job in live
        if job.consumer_id in consumers
    ]
    return not_delivered + [
        MessageJob(
            settlement.job_id,
            settlement.message_id,
            consumers[settlement.consumer_id],
            State.DELIVERED,
            settlement.settled_at,
        )
        for settlement in delivered
        if settlement.consumer_id in consumers
    ]


def changed_at(using: str, live: Iterable[Job]) -> dict[int, datetime]:
    """Return by job id the time from which each live job has its state.

    It is the time of the claim or of the death. For a QUEUED job it is the time from which the job
    can be claimed. Where none is known, it is the time of publishing.
    """
    jobs = list(live)
    claimed = Lease.objects.using(using).filter(
        lease_token__in=[job.lease_token for job in jobs if job.lease_token]
    )
    by_lease = dict(claimed.values_list("lease_token", "claimed_at"))
    dead = [job.id for job in jobs if job.state == State.DEAD]
    settled = ArchivedJob.objects.using(using).filter(job_id__in=dead).values_list("job_id")
    died = dict(settled.annotate(Max("settled_at"))) if dead else {}
    return {
        job.id: died.get(job.id)
        or (by_lease.get(job.lease_token) if job.lease_token else None)
        or job.due_at
        or time_of(job.id)
        for job in jobs
    }


def _of_channel(using: str, channel_id: int) -> QuerySet[Message]:
    return Message.objects.using(using).filter(channel_id=channel_id).only(*HEAD)
