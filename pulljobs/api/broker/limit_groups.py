"""Routes /limit-groups and /limit-group/{name}: operators read and change limit groups.

The parsers of limits in forms are here, for the routes of consumers as well.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from django.db import transaction
from django.db.models import ProtectedError
from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs import registering
from pulljobs.api import exceptions
from pulljobs.api.base_views import UserView
from pulljobs.api.broker import resources
from pulljobs.api.broker.bodies import LimitsFormBody
from pulljobs.api.reading import read_form_or_json
from pulljobs.conf import settings
from pulljobs.errors import InvalidRegistration
from pulljobs.models import LimitGroup

NUMBER: Final = re.compile(r"[0-9]{1,9}")
TRUTHS: Final = {"true": True, "false": False, "": False}


class LimitGroupView(UserView):
    needs = {
        "GET": ["pulljobs.view_limitgroup"],
        "PUT": ["pulljobs.add_limitgroup", "pulljobs.change_limitgroup"],
        "DELETE": ["pulljobs.delete_limitgroup"],
    }

    def get(self, request: Request, **names: str) -> Response:
        return Response(resources.render_limit_group(request, _group_of(names)))

    def put(self, request: Request, **names: str) -> Response:
        """Create the limit group with the limits in the body, or change those of an existing group.

        Limits that the body does not have stay as they are.
        """
        try:
            registering.check_name(names["group"])
            limits = limit_fields(read_form_or_json(request, LimitsFormBody))
            group, _change = registering.put_limit_group(names["group"], limits)
        except InvalidRegistration as error:
            raise exceptions.refused(400, error) from error
        return Response(resources.render_limit_group(request, group))

    def delete(self, request: Request, **names: str) -> Response:
        """Delete the limit group. Refuse (409) while consumers are in it."""
        group = _group_of(names)
        try:
            with transaction.atomic(using=settings().DATABASE):
                group.delete()
        except ProtectedError as error:
            raise exceptions.has_members() from error
        return Response(status=204)


class LimitGroups(UserView):
    needs = {"GET": ["pulljobs.view_limitgroup"]}

    def get(self, request: Request) -> Response:
        rows = LimitGroup.objects.using(settings().DATABASE).order_by("name")
        rows = rows.prefetch_related("consumers__channel")
        return Response({"Result": [resources.render_limit_group(request, row) for row in rows]})


def _group_of(names: Mapping[str, str]) -> LimitGroup:
    rows = LimitGroup.objects.using(settings().DATABASE).prefetch_related("consumers__channel")
    name = names["group"]
    group = None if registering.NUL in name else rows.filter(name=name).first()
    if group is None:
        raise exceptions.no_limit_group()
    return group


def limit_fields(form: Mapping[str, str]) -> dict[str, Any]:
    """Return the limits in a form as fields of the model. An absent limit has no entry.

    Raise InvalidRegistration for a value that is no number or truth value.
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
    """Return the limits per key in a form as model fields. An absent limit has no entry."""
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
        raise InvalidRegistration(f"{name} must be a whole number, not {text!r}.")
    return int(text) if text else None
