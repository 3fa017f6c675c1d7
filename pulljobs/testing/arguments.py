"""Checks of the arguments of test tools: a wrong one would make a test pass that proves nothing."""

from collections.abc import Iterable, Mapping
from datetime import datetime


def check_count(name: str, value: object, least: int = 0) -> None:
    """Raise TypeError unless the value is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise TypeError(f"{name} must be a whole number from {least} on, not {value!r}.")


def check_text(name: str, value: object) -> None:
    """Raise TypeError unless the value is text without NUL, which PostgreSQL can't compare."""
    if not isinstance(value, str) or "\x00" in value:
        raise TypeError(f"{name} must be text without NUL, not {value!r}.")


def check_aware(name: str, value: object) -> None:
    """Raise TypeError unless the value is a datetime with a time zone."""
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise TypeError(f"{name} must be an aware datetime, not {value!r}: give it a time zone.")


def pairs_of(name: str, value: object) -> list[tuple[str, object]]:
    """Return the pairs of a mapping or of an iterable of pairs, or raise TypeError."""
    is_text = isinstance(value, str | bytes)
    items = value.items() if isinstance(value, Mapping) else value
    if is_text or not isinstance(items, Iterable):
        raise TypeError(f"{name} must be a mapping or pairs, not {value!r}.")
    pairs = list(items)
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"{name} must be a mapping or pairs, and {pair!r} is no pair.")
    return [(first, second) for first, second in pairs]


def texts_of(name: str, value: object) -> set[str]:
    """Return one text, or the texts of an iterable, as a set. Raise TypeError for others."""
    texts = [value] if isinstance(value, str) or not isinstance(value, Iterable) else list(value)
    if not all(isinstance(each, str) for each in texts):
        raise TypeError(f"{name} must be text or a list of texts, not {value!r}.")
    return {str(each) for each in texts}
