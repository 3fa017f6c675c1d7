"""Texts of outcomes as PostgreSQL stores them: results as JSON, errors of bounded length."""

import json
from typing import Any

from pulljobs.conf import settings
from pulljobs.engine import outcomes


def encoded(value: Any, what: str = "result") -> str | None:
    """Return a value as JSON text, or None if it is None. `what` is its name in errors.

    Raise TypeError or ValueError if JSON can't represent it, or takes more than `MAX_RESULT_BYTES`.
    """
    if value is None:
        return None
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(
            f"The {what} is not JSON ({error}): use plain values, for example an id."
        ) from error
    return outcomes.result_text(text, settings().MAX_RESULT_BYTES, what)


def clean(text: str) -> str:
    """Return an error text without characters that PostgreSQL refuses.

    The middle of a text of more than `MAX_ERROR_CHARS` characters is cut out.
    """
    text = text.replace("\x00", "\N{REPLACEMENT CHARACTER}")
    text = text.encode("utf-8", "backslashreplace").decode()
    limit = settings().MAX_ERROR_CHARS
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"
