"""`next` and `previous` of lists: base64 of `id|time`, as the protocol has them."""

import base64
import binascii
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from rest_framework.request import Request

from pulljobs.api import exceptions, times
from pulljobs.api.broker import links
from pulljobs.ids import LARGEST_ID
from pulljobs.storage.pages import Cut


class Mark(NamedTuple):
    """What a cursor says of a row."""

    id: int
    made_at: datetime


def cut(request: Request) -> Cut:
    """Which page is asked for; a cursor that can't be read counts as none."""
    after, before = (request.query_params.get(name, "") for name in ("next", "previous"))
    if after and before:
        raise exceptions.both_cursors()
    return Cut(below=_id(after), above=_id(before))


def pages(request: Request, marks: Sequence[Mark]) -> dict[str, str]:
    """Links to what lies on both sides; a page that is empty has none."""
    if not marks:
        return {}
    kept = {name: request.query_params.getlist(name) for name in ("status",)}
    query = {name: values for name, values in kept.items() if values}
    return {
        name: links.with_query(links.here(request), {**query, name: _text(mark)})
        for name, mark in (("next", marks[-1]), ("previous", marks[0]))
    }


def _text(mark: Mark) -> str:
    return base64.b64encode(f"{mark.id}|{times.rfc_3339(mark.made_at)}".encode()).decode()


def _id(cursor: str) -> int | None:
    try:
        number, bar, _time = base64.b64decode(cursor, validate=True).decode("ascii").partition("|")
    except (binascii.Error, ValueError):
        return None
    known = bar and number.isdecimal() and len(number) < 20 and int(number) <= LARGEST_ID
    return int(number) if known else None
