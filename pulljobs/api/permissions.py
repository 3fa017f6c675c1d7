"""What a caller may do, once it is known who it is."""

import re
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from pulljobs import ids
from pulljobs.api import exceptions
from pulljobs.api.authentication import caller
from pulljobs.api.headers import LEASE_TOKEN
from pulljobs.conf import Access, settings
from pulljobs.engine.outcomes import Held
from pulljobs.models import Consumer
from pulljobs.storage import protocol

VIEWING: Final = re.compile(r"pulljobs\.view_")

Needs = Mapping[str, Sequence[str]]
"""By method, the permissions that a user must have, all of them."""


class PullConsumer(BasePermission):
    """Jobs of a push consumer are not for taking."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        if caller(request).type != Consumer.Type.PULL:
            raise exceptions.push_consumer()
        return True


class HolderOrPullConsumer(PullConsumer):
    """But what it took before it was turned to push it may still settle, under its lease."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        is_pushed_to = caller(request).type != Consumer.Type.PULL
        if is_pushed_to and self._holds(request, view.kwargs["job"]):
            return True
        return super().has_permission(request, view)

    def _holds(self, request: Request, job: str) -> bool:
        try:
            held = Held(ids.decode(job), UUID(request.headers[LEASE_TOKEN]))
        except (KeyError, ValueError):
            return False
        return protocol.is_held(settings().DATABASE, caller(request).pk, [held])


class ModelPermission(BasePermission):
    """What the view's `needs` name for the method."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        needs: Needs = getattr(view, "needs", {})
        wanted = needs[request.method or ""]
        self.message = f"It takes the permission {' and '.join(wanted)}: ask for it."
        return may(request, *wanted)


def may(request: Request, *permissions: str) -> bool:
    """Whether the user has them all, or needs none: see PULLJOBS['API_ACCESS']."""
    access = settings().API_ACCESS
    if access == Access.OPEN:
        return True
    if access == Access.READ_ONLY and all(map(VIEWING.match, permissions)):
        return True
    return request.user.has_perms(permissions)
