"""Routes /limit-groups and /limit-group/{name}: operators read and change limit groups."""

from collections.abc import Mapping

from django.db import IntegrityError, connections, transaction
from django.db.models import ProtectedError
from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs import registering
from pulljobs.api import exceptions
from pulljobs.api.base_views import UserView
from pulljobs.api.broker import resources
from pulljobs.api.broker.bodies import LimitsFormBody
from pulljobs.api.broker.forms import limit_fields, read_form_or_json
from pulljobs.conf import settings
from pulljobs.errors import InvalidRegistration
from pulljobs.models import LimitGroup


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

        Limits that the body does not have stay, but an empty rate resets its burst and its window.
        """
        try:
            registering.check_name(names["group"])
            limits = limit_fields(read_form_or_json(request, LimitsFormBody))
            group, _change = registering.put_limit_group(names["group"], limits)
        except InvalidRegistration as error:
            raise exceptions.refused(400, error) from error
        return Response(resources.render_limit_group(request, group))

    def delete(self, request: Request, **names: str) -> Response:
        """Delete the limit group. Refuse (409) while it has consumers that are not deleted."""
        group = _group_of(names)
        try:
            with transaction.atomic(using=settings().DATABASE):
                # No request shows deleted consumers, or could take them out.
                group.consumers.exclude(deleted_at=None).update(limit_group=None)
                group.delete()
                # At the commit it would be too late: with ATOMIC_REQUESTS that is after this view.
                connections[settings().DATABASE].check_constraints()
        except (ProtectedError, IntegrityError) as error:
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
