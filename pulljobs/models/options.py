"""Fields of a consumer that `@handler` accepts, and the check of their values."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import models

from pulljobs.models.consumers import Consumer
from pulljobs.models.token_holders import validate_name

NOT_OPTIONS: Final = {"channel", "name", "paused_until"}
"""Fields of a consumer that users edit and that `@handler` does not accept."""
KINDS: Final[Mapping[type[Any], type | tuple[type, ...]]] = {
    models.DurationField: timedelta,
    models.CharField: str,
    models.IntegerField: int,
    models.FloatField: (float, int),
    models.BooleanField: bool,
}


def names() -> set[str]:
    """Return the names of the fields that `@handler` accepts."""
    return {
        field.name
        for field in Consumer._meta.concrete_fields
        if field.editable and not field.primary_key and field.name not in NOT_OPTIONS
    }


def problems(channel: str, consumer: str, given: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each wrong name or value, without a query."""
    try:
        for name in (channel, consumer):
            validate_name(name)
    except ValidationError as error:
        return [f"{name!r}: {' '.join(error.messages)}"]
    if mistyped := [text for name, value in given.items() for text in _mistyped(name, value)]:
        return mistyped
    row = Consumer(name=consumer, **given)
    others = {field.name for field in Consumer._meta.concrete_fields} - given.keys()
    try:
        row.clean_fields(exclude=others)
        row.clean()
    except ValidationError as error:
        return [f"{name}: {' '.join(texts)}" for name, texts in error.message_dict.items()]
    return []


def _mistyped(name: str, value: object) -> list[str]:
    """Return a sentence if the type is wrong.

    The cleaning of Django's fields accepts text for numbers and durations, and fails for some
    types.
    """
    field = Consumer._meta.get_field(name)
    [kind] = [types for field_class, types in KINDS.items() if isinstance(field, field_class)]
    is_bool = isinstance(value, bool)
    if (value is None and field.null) or (isinstance(value, kind) and is_bool == (kind is bool)):
        return []
    wanted = kind if isinstance(kind, type) else kind[0]
    return [f"{name} must be of type {wanted.__name__}, not {value!r}."]
