"""Reading of request bodies by the declarations of `bodies`, which are typed dictionaries.

`refuse` makes the refusal of a body from a sentence.
"""

import json
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from typing import (
    Any,
    Final,
    NamedTuple,
    NoReturn,
    TypeVar,
    cast,
    get_args,
    get_origin,
    is_typeddict,
)

from pulljobs.api import exceptions
from pulljobs.api.bodies import (
    Field,
    ItemsUpTo,
    UpTo,
    choices_of,
    describe,
    fields_of,
    is_choice,
    is_closed,
)
from pulljobs.api.value_checks import CHECKS, Check, Refuse
from pulljobs.conf import settings

B = TypeVar("B", bound=Mapping[str, Any])
LONGEST_NAME: Final = 40
"""Number of characters of an unknown field's name that its refusal quotes."""
GivenFields = Mapping[str, Any]
"""JSON object with its keys in lower case, because names of fields are compared in any case."""


class FieldReader(NamedTuple):
    """Field of a declared body, with the function that checks its values."""

    name: str
    key: str
    check: Check
    is_required: bool
    is_nullable: bool
    limit: UpTo | None


def read_body(body: type[B], text: bytes, refuse: Refuse = exceptions.bad_body) -> B:
    """Return the declared fields of a JSON body by name, or raise a refusal.

    An empty body counts as an empty object.
    """
    return read_fields(body, read_object(text, refuse) if text.strip() else {}, refuse)


def read_object(text: bytes, refuse: Refuse) -> GivenFields:
    """Parse a JSON object and return it with its keys in lower case, or raise a refusal."""
    try:
        parsed = json.loads(text.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise refuse("The body is not JSON") from error
    if not isinstance(parsed, dict):
        raise refuse("The body is not a JSON object")
    return _in_lower_case(parsed)


def read_fields(body: type[B], given: GivenFields, refuse: Refuse) -> B:
    """Check the values of the fields that a body declares and return them by name, without nulls.

    Null counts as absent, except in a required field that may be null. Raise a refusal for a
    missing or wrong value, and for the unknown fields that `refuse_unknown` finds. Otherwise raise
    a refusal (409) for a value above a limit of the settings.
    """
    refuse_unknown(body, given, refuse)
    values: dict[str, Any] = {}
    for name, key, check, is_required, is_nullable, _limit in _readers_of(body):
        value = given.get(key)
        if value is not None:
            try:
                values[name] = check(value, refuse)
            except (ValueError, OverflowError) as error:
                raise _refusal(body, name, refuse) from error
        elif is_required and not (is_nullable and key in given):
            raise _refusal(body, name, refuse)
    _check_limits(_limited_of(body), values)
    return cast("B", values)


def refuse_unknown(body: Any, given: GivenFields, refuse: Refuse) -> None:
    """Raise a refusal if a body that `closed` decorates has a field that it does not declare."""
    if not is_closed(body):
        return
    known = {field.key: field.name for field in fields_of(body)}
    if unknown := [key[:LONGEST_NAME] for key in given if key not in known]:
        raise refuse(f"There is no field {unknown[0]!r} ({_suggest_name(unknown[0], known)})")


def _suggest_name(unknown: str, known: Mapping[str, str]) -> str:
    """Return a clause that names the most similar field, or all fields if none is similar."""
    if similar := get_close_matches(unknown, known, 1):
        return f"the nearest is {known[similar[0]]}"
    return f"the fields are {', '.join(known.values())}"


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _in_lower_case(given: Mapping[str, Any]) -> GivenFields:
    return {key.lower(): value for key, value in given.items()}


def _refusal(body: Any, name: str, refuse: Refuse) -> Exception:
    [field] = (field for field in fields_of(body) if field.name == name)
    return refuse(f"{name} {describe(field)}")


def _check_limits(readers: Iterable[FieldReader], values: Mapping[str, Any]) -> None:
    for reader in readers:
        if reader.limit is not None and values.get(reader.name, 0) > reader.limit.limit:
            raise exceptions.above_limit(reader.name, reader.limit.limit)


@cache
def _readers_of(body: Any) -> tuple[FieldReader, ...]:
    return tuple(
        FieldReader(
            field.name,
            field.key,
            _make_check(field),
            field.is_required,
            field.is_nullable,
            field.mark(UpTo),
        )
        for field in fields_of(body)
    )


@cache
def _limited_of(body: Any) -> tuple[FieldReader, ...]:
    return tuple(reader for reader in _readers_of(body) if reader.limit is not None)


def _make_check(field: Field) -> Check:
    if get_origin(field.kind) is list:
        return _check_items_of(field)
    if is_typeddict(field.kind):
        return _check_object_of(field.kind)
    if is_choice(field.kind):
        return _check_choice_of(field.kind)
    if get_origin(field.kind) is dict:
        return _check_texts
    return CHECKS[field.kind](field)


def _check_texts(value: Any, refuse: Refuse) -> dict[str, str]:
    """Return the value if it is a JSON object of texts, or raise ValueError.

    Publishing checks the names and the texts.
    """
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise ValueError(value)
    return value


def _check_items_of(field: Field) -> Check:
    [body], limit = get_args(field.kind), field.mark(ItemsUpTo)

    def check(value: Any, refuse: Refuse) -> list[Any]:
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise ValueError(value)
        if limit is not None and len(value) > (most := getattr(settings(), limit.setting)):
            raise refuse(f"{field.name} has more than {most} entries")
        return [read_fields(body, _in_lower_case(item), refuse) for item in value]

    return check


def _check_object_of(body: Any) -> Check:
    def check(value: Any, refuse: Refuse) -> Any:
        if not isinstance(value, dict):
            raise ValueError(value)
        return read_fields(body, _in_lower_case(value), refuse)

    return check


def _check_choice_of(kind: Any) -> Check:
    choices = {
        choice: kind(choice) if isinstance(kind, type) else choice for choice in choices_of(kind)
    }

    def check(value: Any, refuse: Refuse) -> Any:
        if not isinstance(value, str) or value not in choices:
            raise ValueError(value)
        return choices[value]

    return check
