"""Search for a text in the errors of jobs and in their messages, row by row."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from django.db.models import (
    BinaryField,
    BooleanField,
    ExpressionWrapper,
    Func,
    IntegerField,
    Q,
    QuerySet,
    Value,
)
from django.db.models.lookups import GreaterThan

from pulljobs.models import Message

COMPARED_BYTES: Final = 16 * 1024
"""Number of bytes at the beginning of a payload that are searched."""


class TextQuery(NamedTuple):
    """Text to look for, in payloads as well only if the user may see payloads."""

    text: str
    payloads: bool

    @property
    def forms(self) -> list[bytes]:
        """Bytes that the text has in payloads: as it is, and escaped in two ways as in JSON."""
        escaped = [json.dumps(self.text, ensure_ascii=ascii)[1:-1] for ascii in (True, False)]
        return [form.encode() for form in dict.fromkeys([self.text, *escaped])]


def find_hits(rows: QuerySet[Any], field: str, ids: Sequence[int], query: TextQuery) -> set[int]:
    """Return the values of `field` of those rows whose error or message contains the text.

    `ids` are the values of `field` to look at, and `rows` live jobs or rows of the archive.
    """
    in_error = ExpressionWrapper(Q(error__icontains=query.text), output_field=BooleanField())
    compared = rows.filter(**{f"{field}__in": ids}).annotate(in_error=in_error)
    columns = list(compared.values_list(field, "message_id", "in_error"))
    messages = _find_messages({message_id for _id, message_id, _hit in columns}, rows.db, query)
    return {id for id, message_id, hit in columns if hit or message_id in messages}


def _find_messages(message_ids: Iterable[int], using: str, query: TextQuery) -> set[int]:
    ids = sorted(message_ids)
    if not ids:
        return set()
    named = Q(key__icontains=query.text) | Q(client_message_id__icontains=query.text)
    for form in query.forms if query.payloads else []:
        named |= Q(GreaterThan(_Position(Value(form, BinaryField()), "payload"), 0))
    # The bounds limit the query to the partitions of those days.
    rows = Message.objects.using(using).filter(pk__in=ids, pk__gte=ids[0], pk__lte=ids[-1])
    return set(rows.filter(named).values_list("pk", flat=True))


class _Position(Func):
    """SQL expression for the position of bytes in the first 16 kB of a payload, 0 if not there."""

    template = f"position(%(expressions)s FROM 1 FOR {COMPARED_BYTES}))"
    arg_joiner = " IN substring("
    output_field = IntegerField()
