"""Check of the arguments of `@handler`, most of which are fields of its consumer.

It makes no query: it runs when modules are imported.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import timedelta
from difflib import get_close_matches
from inspect import Signature, isasyncgenfunction, isgeneratorfunction, signature, unwrap
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import models

from pulljobs.errors import ConfigurationError
from pulljobs.models.consumers import Consumer
from pulljobs.models.flow import FlowLimits, LimitGroup
from pulljobs.models.token_holders import validate_name
from pulljobs.run_limits import timeout_problems

NOT_OPTIONS: Final = {"channel", "name", "paused_until"}
"""Fields of a consumer that users edit and that `@handler` does not accept."""
GROUP: Final = "limit_group"
"""Field whose value is the name of a limit group. Its row is looked up when a worker starts."""
KINDS: Final[Mapping[type[Any], type | tuple[type, ...]]] = {
    models.DurationField: timedelta,
    models.CharField: str,
    models.IntegerField: int,
    models.FloatField: (float, int),
    models.BooleanField: bool,
    models.ForeignKey: str,
}


def names() -> set[str]:
    """Return the names of the consumer's fields that `@handler` accepts as options."""
    return {
        field.name
        for field in Consumer._meta.concrete_fields
        if field.editable and not field.primary_key and field.name not in NOT_OPTIONS
    }


def check(
    name: str,
    consumer_names: tuple[str, str],
    given: Mapping[str, Any],
    keywords: Collection[str],
    timeout: object,
    on_giving_up: object,
) -> None:
    """Raise ConfigurationError for wrong arguments of `@handler` above the function `name`.

    `consumer_names` are (channel, consumer), `given` the options that are fields of the consumer,
    and `keywords` the names of all other arguments, to suggest one for a wrong name.
    """
    fields = names()
    for wrong in sorted(given.keys() - fields):
        [nearest] = get_close_matches(wrong, [*sorted(fields), *keywords], 1, 0)
        raise ConfigurationError(
            f"{name} has the option {wrong!r}, which is neither a keyword of @handler nor a field "
            f"of the consumer; did you mean {nearest!r}?"
        )
    if wrong_values := [*_own_problems(timeout, on_giving_up), *problems(*consumer_names, given)]:
        raise ConfigurationError(f"{name}: {' '.join(wrong_values)}")


def name_of(function: Callable[..., Any]) -> str:
    """Return the dotted name of a function, for error messages."""
    return f"{function.__module__}.{getattr(function, '__qualname__', function)}"


def is_same(known: Callable[..., Any], new: Callable[..., Any]) -> bool:
    """Return True if both are one function, or one definition whose module was imported again."""
    if known is new:
        return True
    first, second = (getattr(unwrap(function), "__code__", None) for function in (known, new))
    if first is None or second is None or first is second:
        return False  # One function under two decorators is no import.
    name, is_in_place = name_of(known), first.co_firstlineno == second.co_firstlineno
    return is_in_place and "<" not in name and name == name_of(new)


def check_flags(name: str, **flags: object) -> None:
    """Raise ConfigurationError unless each flag is True or False: text such as "no" is truthy."""
    for flag, value in flags.items():
        if not isinstance(value, bool):
            raise ConfigurationError(f"{name}: {flag} must be True or False, not {value!r}.")


def check_function(decorator: str, function: object) -> None:
    """Raise ConfigurationError if a call of `function` with one argument would fail or run nothing.

    It is not called: its type and its parameters decide.
    """
    if not callable(function):
        raise ConfigurationError(f"{decorator} is above {function!r}, which is no function.")
    if isgeneratorfunction(function) or isasyncgenfunction(function):
        raise ConfigurationError(
            f"{name_of(function)} is a generator, of which a call runs nothing: write {decorator} "
            "above a function without yield."
        )
    _check_parameters(decorator, function)


def _check_parameters(decorator: str, function: Callable[..., Any]) -> None:
    try:
        taken = signature(function, follow_wrapped=False).replace(return_annotation=Signature.empty)
    except Exception:
        return  # Functions in C may lack a signature, or Python 3.14 fails at an annotation.
    try:
        taken.bind(None)
    except TypeError as error:
        raise ConfigurationError(
            f"{name_of(function)} takes {taken}, but {decorator} calls it with one argument, which "
            "has the payload."
        ) from error


def _own_problems(timeout: object, on_giving_up: object) -> Iterator[str]:
    yield from timeout_problems(timeout)
    if on_giving_up is not None and not callable(on_giving_up):
        yield f"on_giving_up must be a function, not {on_giving_up!r}."


def problems(channel: str, consumer: str, given: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a channel's or consumer's name, else with types, else with values.

    There is one sentence for the first wrong name, or for each wrong field.
    """
    try:
        for name in (channel, consumer):
            validate_name(name)
    except ValidationError as error:
        return [f"{name!r}: {' '.join(error.messages)}"]
    if mistyped := [text for name, value in given.items() for text in _mistyped(name, value)]:
        return mistyped
    row = Consumer(name=consumer, **{name: each for name, each in given.items() if name != GROUP})
    others = {field.name for field in Consumer._meta.concrete_fields} - given.keys() | {GROUP}
    try:
        row.clean_fields(exclude=others)
        row.clean()
    except ValidationError as error:
        return [f"{name}: {' '.join(texts)}" for name, texts in error.message_dict.items()]
    return []


def group_problems(name: object, limits: Mapping[str, Any]) -> list[str]:
    """Return sentences on what is wrong in the declaration of a limit group."""
    if not isinstance(name, str):
        return [f"Its name must be text, not {name!r}."]
    if wrong := wrong_limits(limits):
        return wrong
    try:
        LimitGroup(name=name, **limits).full_clean(validate_unique=False)
    except ValidationError as error:
        return [f"{key}: {' '.join(texts)}" for key, texts in error.message_dict.items()]
    return []


def wrong_limits(limits: Mapping[str, Any]) -> list[str]:
    """Return a sentence on unknown names of limits of a group, or else one for each wrong type."""
    known = [field.name for field in FlowLimits._meta.fields if field.editable]
    if unknown := limits.keys() - set(known):
        return [f"It has no limit {', '.join(sorted(unknown))}: use {', '.join(known)}."]
    return [text for key, value in limits.items() for text in _mistyped(key, value)]


def _mistyped(name: str, value: object) -> list[str]:
    """Return a list with an error message if the value has a wrong type, else an empty list.

    Django's own check accepts text for numbers and durations, and raises TypeError for some types.
    """
    field = Consumer._meta.get_field(name)
    [kind] = [types for field_class, types in KINDS.items() if isinstance(field, field_class)]
    is_bool = isinstance(value, bool)
    if (value is None and field.null) or (isinstance(value, kind) and is_bool == (kind is bool)):
        return []
    wanted = kind if isinstance(kind, type) else kind[0]
    return [f"{name} must be of type {wanted.__name__}, not {value!r}."]
