"""Which fields of a consumer code may name, and with what: asked where no row is made yet."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import models

from pulljobs.models.registry import Consumer, validate_name

NOT_OPTIONS: Final = {"channel", "name", "paused_until"}
"""Fields of a consumer that people edit and its handler does not name."""
KINDS: Final[Mapping[type[Any], type | tuple[type, ...]]] = {
    models.DurationField: timedelta,
    models.CharField: str,
    models.IntegerField: int,
    models.FloatField: (float, int),
    models.BooleanField: bool,
}


def names() -> set[str]:
    return {
        one.name
        for one in Consumer._meta.concrete_fields
        if one.editable and not one.primary_key and one.name not in NOT_OPTIONS
    }


def problems(channel: str, consumer: str, given: Mapping[str, Any]) -> list[str]:
    """What is wrong with names and values; the database is not asked."""
    try:
        for name in (channel, consumer):
            validate_name(name)
    except ValidationError as error:
        return [f"{name!r}: {' '.join(error.messages)}"]
    if mistyped := [one for name, value in given.items() for one in _mistyped(name, value)]:
        return mistyped
    row = Consumer(name=consumer, **given)
    others = {one.name for one in Consumer._meta.concrete_fields} - given.keys()
    try:
        row.clean_fields(exclude=others)
        row.clean()
    except ValidationError as error:
        return [f"{name}: {' '.join(said)}" for name, said in error.message_dict.items()]
    return []


def _mistyped(name: str, value: object) -> list[str]:
    """The fields' own cleaning would take text for numbers and spans, and fail for some types."""
    field = Consumer._meta.get_field(name)
    [kind] = [of for one, of in KINDS.items() if isinstance(field, one)]
    is_bool = isinstance(value, bool)
    if (value is None and field.null) or (isinstance(value, kind) and is_bool == (kind is bool)):
        return []
    wanted = kind if isinstance(kind, type) else kind[0]
    return [f"{name} must be of type {wanted.__name__}, not {value!r}."]
