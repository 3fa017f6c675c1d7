"""Forms of the routes that write rows: URL-encoded, or as JSON objects of texts."""

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from rest_framework.request import Request

from pulljobs.api import exceptions, raw_bodies
from pulljobs.api.bodies import fields_of
from pulljobs.api.reading import GivenFields, read_object, refuse_unknown
from pulljobs.errors import InvalidRegistration

NUMBER: Final = re.compile(r"[0-9]{1,9}")
TRUTHS: Final = {"true": True, "false": False, "": False}


def read_form_or_json(request: Request, form: Any) -> Mapping[str, str]:
    """Return the declared fields of a form, or of a JSON object of texts, by their names.

    Absent fields have no entry. Raise a refusal: 415 for another Content-Type, 400 for a value that
    is no text, and for an unknown field of a closed form.
    """
    given = _read_given(request)
    refuse_unknown(form, given, exceptions.bad_body)
    fields = {field.name: given.get(field.key) for field in fields_of(form)}
    for name, value in fields.items():
        if not isinstance(value, str | None):
            raise exceptions.bad_field(f"{name} must be text.")
    return {name: value for name, value in fields.items() if value is not None}


def _read_given(request: Request) -> GivenFields:
    if request.META.get("CONTENT_TYPE", "").partition(";")[0] != raw_bodies.JSON:
        form = cast("Mapping[str, str]", raw_bodies.read_form(request, or_json=True))
        return {name.lower(): value for name, value in form.items()}
    largest, advice = raw_bodies.LARGEST_FORM, "send shorter fields"
    text = raw_bodies.read_decompressed(request._request, largest, advice)
    return read_object(text, exceptions.bad_body)


def pick_form_fields(form: Any, sent: Mapping[str, str]) -> dict[str, str]:
    """Return the values of a form's declared fields, "" where absent, unchecked.

    The functions of `registering` check them.
    """
    return {field.name: sent.get(field.name, "") for field in fields_of(form)}


def limit_fields(form: Mapping[str, str]) -> dict[str, Any]:
    """Return the limits in a form as fields of the model. An absent limit has no entry.

    An empty rate also resets its burst and its window, if they are absent. The rate stays text.
    Raise InvalidRegistration for another value that is no number or truth value.
    """
    rate = form.get("rate")
    fields: dict[str, Any] = {} if rate is None else {"rate": rate}
    if rate == "":
        fields |= {"rate_burst": None, "rate_window": False}
    for name, sent in (("rate_burst", "rateBurst"), ("max_in_flight", "maxInFlight")):
        if (text := form.get(sent)) is not None:
            fields[name] = _parse_number(sent, text)
    if (window := form.get("rateWindow")) is not None:
        fields["rate_window"] = _parse_truth("rateWindow", window)
    return fields


def key_fields(form: Mapping[str, str]) -> dict[str, Any]:
    """Return the limits per key in a form as model fields. An absent limit has no entry.

    An empty rate also resets an absent `rate_per_key`. Raise InvalidRegistration
    as `limit_fields` does.
    """
    fields: dict[str, Any] = {"rate_per_key": False} if form.get("rate") == "" else {}
    if (text := form.get("maxInFlightPerKey")) is not None:
        fields["max_in_flight_per_key"] = _parse_number("maxInFlightPerKey", text)
    for name, sent in (("rate_per_key", "ratePerKey"), ("fair_by_key", "fairByKey")):
        if (text := form.get(sent)) is not None:
            fields[name] = _parse_truth(sent, text)
    return fields


def _parse_truth(name: str, text: str) -> bool:
    if text not in TRUTHS:
        raise InvalidRegistration(f"{name} must be true or false, not {text!r}.")
    return TRUTHS[text]


def _parse_number(name: str, text: str) -> int | None:
    if text and not NUMBER.fullmatch(text):
        raise InvalidRegistration(
            f"{name} must be a whole number of at most 9 digits, not {text!r}."
        )
    return int(text) if text else None
