"""`X-Request-ID`: the caller's own where it can be echoed, else a new one."""

import logging
import re
import uuid
from contextvars import ContextVar
from typing import Final

from django.http import HttpRequest

HEADER: Final = "X-Request-ID"
_META: Final = "HTTP_X_REQUEST_ID"
_ECHOED: Final = re.compile(r"[\x20-\x7e]{1,200}")

current: ContextVar[str] = ContextVar("pulljobs_request_id", default="-")


def of(request: HttpRequest) -> str:
    """The same at every call; what could break a header or a log line is replaced."""
    given: str = request.META.get(_META, "")
    if not _ECHOED.fullmatch(given):
        given = request.META[_META] = uuid.uuid4().hex
    return given


class InLogs(logging.Filter):
    """For handlers: gives every record a `request_id`, "-" outside of requests."""

    def filter(self, record: logging.LogRecord) -> bool:
        request = getattr(record, "request", None)
        record.request_id = of(request) if isinstance(request, HttpRequest) else current.get()
        return True
