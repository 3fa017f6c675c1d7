"""Checks of single values in request bodies: numbers, seconds, flags, texts and times."""

import math
from collections.abc import Callable, Mapping
from typing import (
    Any,
    Final,
)

from pulljobs.api.bodies import (
    Bounds,
    Field,
    Format,
    TextUpTo,
    parse_time,
)
from pulljobs.engine.validation import encodable

Refuse = Callable[[str], Exception]
"""Function that makes the refusal of a body from a sentence without its period."""
Check = Callable[[Any, Refuse], Any]
"""Function that returns a checked value, or raises ValueError, OverflowError or a refusal."""
UNBOUNDED: Final = Bounds(-math.inf)


def _check_whole_of(field: Field) -> Check:
    least, most = field.mark(Bounds) or UNBOUNDED

    def check(value: Any, refuse: Refuse) -> int:
        if type(value) is not int or not least <= value <= most:  # True is an int
            raise ValueError(value)
        return value

    return check


def _check_seconds_of(field: Field) -> Check:
    least, most = field.mark(Bounds) or UNBOUNDED

    def check(value: Any, refuse: Refuse) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(value)
        seconds = float(value)
        if not (math.isfinite(seconds) and least <= seconds <= most):
            raise ValueError(value)
        return seconds

    return check


def _check_flag_of(field: Field) -> Check:
    def check(value: Any, refuse: Refuse) -> bool:
        if not isinstance(value, bool):
            raise ValueError(value)
        return value

    return check


def _check_text_of(field: Field) -> Check:
    limit, is_time = field.mark(TextUpTo), Format("date-time") in field.marks

    def check(value: Any, refuse: Refuse) -> str:
        if not isinstance(value, str):
            raise ValueError(value)
        if limit is not None and not _is_allowed(value, limit):
            raise ValueError(value)
        if is_time:
            parse_time(value)
        return value

    return check


def _is_allowed(text: str, limit: TextUpTo) -> bool:
    """Return True if a text is short enough and has only characters that are allowed.

    With a pattern these are printable ones. Without, they are all that PostgreSQL stores, which
    excludes NUL and half surrogate pairs.
    """
    is_clean = encodable(text) if limit.pattern is None else text.isprintable()
    return is_clean and len(text) <= limit.length


def _check_json_of(field: Field) -> Check:
    return lambda value, refuse: value


CHECKS: Final[Mapping[Any, Callable[[Field], Check]]] = {
    int: _check_whole_of,
    float: _check_seconds_of,
    bool: _check_flag_of,
    str: _check_text_of,
    Any: _check_json_of,
}
