"""How a job, its message and its past are shown."""

import codecs
from datetime import datetime
from typing import Any, Final, NamedTuple

from django.db.models import BinaryField, F, Func, IntegerField, QuerySet
from django.urls import reverse
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timezone import localtime

from pulljobs import ids
from pulljobs.conf import settings
from pulljobs.models import ArchivedJob, Consumer, Job, Lease, Message, Node

SHOWN_BYTES: Final = 4_000
SHOWN_BINARY_BYTES: Final = 256
SHOWN_SETTLEMENTS: Final = 20
NOTHING: Final = "-"


class ShownMessage(NamedTuple):
    xid: str
    client_message_id: str | None
    published_at: datetime
    content_type: str
    headers: dict[str, str]
    size: int
    text: str | None
    """The beginning of the payload; None: it is no text, see `hex`."""
    hex: str
    cut: bool


def message_of(job: Job | ArchivedJob) -> ShownMessage | None:
    """None: its partition was dropped."""
    message = _messages().filter(pk=job.message_id).first()
    if message is None:
        return None
    head = bytes(message.head)
    text = _text(head, whole=message.size <= SHOWN_BYTES)
    return ShownMessage(
        ids.encode(message.pk),
        message.client_message_id,
        message.published_at,
        message.content_type,
        message.headers,
        message.size,
        text,
        head[:SHOWN_BINARY_BYTES].hex(" "),
        message.size > (SHOWN_BINARY_BYTES if text is None else SHOWN_BYTES),
    )


def history_of(job_id: int) -> QuerySet[ArchivedJob]:
    """Its last settlements; ordered by no index, so that they are found by the job's."""
    rows = ArchivedJob.objects.using(settings().DATABASE).filter(job_id=job_id)
    return rows.order_by("-settled_at")[:SHOWN_SETTLEMENTS]


def holder_of(job: Job) -> str:
    lease = Lease.objects.using(settings().DATABASE).filter(token__in=[job.lease]).first()
    if lease is None:
        return NOTHING
    who, until = node_of(lease) or "somebody", moment(lease.leased_until)
    return f"{who}, by {lease.get_door_display()}, until {until}"


def node_of(row: Lease | ArchivedJob) -> Node | None:
    return Node.objects.using(settings().DATABASE).filter(pk__in=[row.node_id]).first()


def preformatted(text: Any) -> SafeString | str:
    return format_html('<pre class="pulljobs">{}</pre>', text) if text else NOTHING


def moment(at: datetime | None) -> str:
    """Jobs are about seconds, so seconds are shown."""
    return date_format(localtime(at), "Y-m-d H:i:s") if at else NOTHING


def state_of(job: Job | ArchivedJob) -> str:
    return f"{job.state}, {job.get_reason_display()}" if job.reason else job.state


def consumer_link(consumer: Consumer) -> SafeString:
    url = reverse("admin:pulljobs_consumer_change", args=[consumer.pk])
    return format_html('<a href="{}">{} / {}</a>', url, consumer.channel, consumer)


def _messages() -> QuerySet[Any]:
    head = Func(F("payload"), 1, SHOWN_BYTES, function="substring", output_field=BinaryField())
    size = Func(F("payload"), function="octet_length", output_field=IntegerField())
    return (
        Message.objects.using(settings().DATABASE).defer("payload").annotate(head=head, size=size)
    )


def _text(head: bytes, *, whole: bool) -> str | None:
    """None where it is no text; a character that the cut went through is left out."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(head, final=whole)
    except UnicodeDecodeError:
        return None
