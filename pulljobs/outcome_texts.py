"""What handlers say, as PostgreSQL takes it: JSON of results, and errors that are not too long."""

import json
from typing import Any

from pulljobs.conf import settings
from pulljobs.engine import outcomes


def encoded(result: Any) -> str | None:
    """The result as JSON text; TypeError or ValueError for what is none, or too long."""
    if result is None:
        return None
    text = json.dumps(result, allow_nan=False, ensure_ascii=False)
    return outcomes.result_text(text, settings().MAX_RESULT_BYTES)


def clean(text: str) -> str:
    """An error text as PostgreSQL takes it, cut in the middle where it is too long."""
    text = text.replace("\x00", "\N{REPLACEMENT CHARACTER}")
    text = text.encode("utf-8", "backslashreplace").decode()
    limit = settings().MAX_ERROR_CHARS
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"
