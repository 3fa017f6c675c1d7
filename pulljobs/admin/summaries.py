"""Summaries of messages: the call of a task, or the first line of another payload."""

import json
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from django.db.models import BinaryField, F, Func, IntegerField, QuerySet
from django.template.defaultfilters import filesizeformat
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator

from pulljobs.admin import formats
from pulljobs.conf import settings
from pulljobs.models import Message

HEAD_BYTES: Final = 2 * 1024
"""Largest number of bytes of a payload that are read for its summary."""
LONGEST: Final = 120
BEGUN_TASK: Final = re.compile(r'\{"task": ?"([^"\\]+)"(?:.*?"args": ?\[(.*))?', re.DOTALL)
"""Pattern of the beginning of a Django task's payload that is longer than HEAD_BYTES."""


class MessageSummary(NamedTuple):
    """Summary of a message, as far as the user may see its payload."""

    text: str
    key: str | None
    masked: bool
    """True if `text` has only type and size, because the user may not see the payload."""

    def __str__(self) -> str:
        return self.text


def attach(rows: Sequence[Any], *, readable: bool) -> None:
    """Set `summary` of each job or settlement: None if its message was dropped.

    Without `readable` the summaries are masked, and no payload is read.
    """
    ids = sorted({row.message_id for row in rows})
    by_message: dict[int, MessageSummary] = {}
    if ids:
        # The bounds limit the query to the partitions of those days.
        messages = Message.objects.using(settings().DATABASE).filter(
            pk__in=ids, pk__gte=ids[0], pk__lte=ids[-1]
        )
        annotated = annotate_heads(messages.only("key", "content_type"), readable=readable)
        by_message = {each.pk: summarize(each) for each in annotated}
    for row in rows:
        row.summary = by_message.get(row.message_id)


def annotate_heads(messages: QuerySet[Any], *, readable: bool) -> QuerySet[Any]:
    """Annotate messages with `size` and, if `readable`, with `head`: the payload's beginning.

    `size` is that of the payload in bytes.
    """
    size = Func(F("payload"), function="octet_length", output_field=IntegerField())
    rows: QuerySet[Any] = messages.annotate(size=size)
    if not readable:
        return rows
    head = Func(F("payload"), 1, HEAD_BYTES, function="substring", output_field=BinaryField())
    headed: QuerySet[Any] = rows.annotate(head=head)
    return headed


def summarize(message: Any) -> MessageSummary:
    """Return the summary of a message with the annotation `size`, masked if it has no `head`."""
    head = getattr(message, "head", None)
    if head is None:
        return MessageSummary(_describe_masked(message), message.key, masked=True)
    text = _first_line(bytes(head), is_whole=message.size <= HEAD_BYTES)
    return MessageSummary(text or _describe_masked(message), message.key, masked=False)


def show(summary: MessageSummary | None) -> SafeString:
    """Render a summary with the message's key below it, or "no longer stored" for None.

    `bdi` elements keep controls of text direction from reaching the rest of the page.
    """
    if summary is None:
        return format_html('<span class="quiet">{}</span>', "no longer stored")
    kind = "quiet" if summary.masked else "pulljobs-summary"
    text = format_html('<bdi class="{}">{}</bdi>', kind, summary.text)
    if summary.key is None:
        return text
    return format_html('{}<bdi class="pulljobs-brief">key {}</bdi>', text, summary.key)


def _describe_masked(message: Any) -> str:
    """Return the content type and the size of a payload, which reveal nothing of its content."""
    return f"{message.content_type or formats.NOTHING}, {filesizeformat(message.size)}"


def _first_line(head: bytes, *, is_whole: bool) -> str:
    """Return a task as a call, JSON in a line, the first line of other text, or "" for binary."""
    text = head.decode(errors="strict" if is_whole else "ignore") if _is_text(head) else ""
    if is_whole:
        text = _as_call(text) or text
    elif begun := BEGUN_TASK.match(text):
        text = f"{begun[1]}({begun[2] or ''}"
    line = " ".join(text.split()) if text.lstrip()[:1] in {"{", "["} else text.strip()
    return str(Truncator(line.partition("\n")[0]).chars(LONGEST))


def _is_text(head: bytes) -> bool:
    try:
        head.decode()
    except UnicodeDecodeError as error:
        # A letter may be cut at the end of the head.
        return b"\x00" not in head and error.end == len(head) and error.start > len(head) - 4
    return b"\x00" not in head


def _as_call(text: str) -> str:
    """Return the payload of a Django task as a call, as `send(1, to="a")`, or "" for any other."""
    try:
        content = json.loads(text)
        task, args, kwargs = content["task"], content["args"], content["kwargs"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    if not (isinstance(task, str) and isinstance(args, list) and isinstance(kwargs, dict)):
        return ""
    shown = [json.dumps(value, ensure_ascii=False) for value in args]
    shown += [f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in kwargs.items()]
    # JSON may escape half a surrogate pair, which no page can contain.
    return f"{task}({', '.join(shown)})".encode(errors="backslashreplace").decode()
