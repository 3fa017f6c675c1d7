from collections.abc import Mapping, Sequence

from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from pulljobs.api import exceptions
from pulljobs.api.authentication import caller
from pulljobs.models import Consumer

Needs = Mapping[str, Sequence[str]]
"""By method, the permissions that a user must have, all of them."""


class PullConsumer(BasePermission):
    """Jobs of a push consumer are not for taking."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        if caller(request).type != Consumer.Type.PULL:
            raise exceptions.push_consumer()
        return True


class ModelPermission(BasePermission):
    """What the view's `needs` name for the method."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        needs: Needs = getattr(view, "needs", {})
        return request.user.has_perms(needs[request.method or ""])
