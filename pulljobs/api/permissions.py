"""Permissions of authenticated callers, as classes of DRF."""

import re
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from pulljobs import ids
from pulljobs.api import exceptions
from pulljobs.api.authentication import LEASE_TOKEN, caller
from pulljobs.conf import Access, settings
from pulljobs.engine.outcomes import Held
from pulljobs.models import Consumer
from pulljobs.storage import protocol

VIEWING: Final = re.compile(r"pulljobs(_[a-z]+)?\.view_")

Needs = Mapping[str, Sequence[str]]
"""Permissions of Django by HTTP method: a user must have all of them."""


class PullConsumer(BasePermission):
    """Permission for pull consumers only. A push consumer gets a refusal (412)."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        if caller(request).type != Consumer.Type.PULL:
            raise exceptions.push_consumer()
        return True


class HolderOrPullConsumer(PullConsumer):
    """Permission for pull consumers, and for a push consumer that holds the job in the URL.

    It still holds jobs that it claimed before it became a push consumer. Its request must have the
    lease token of the job.
    """

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
    """Permission for users who have the permissions of Django in the view's `needs`."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        needs: Needs = getattr(view, "needs", {})
        permissions = needs[request.method or ""]
        self.message = f"The user needs the permission {' and '.join(permissions)}: ask for it."
        return is_permitted(request, *permissions)


def is_permitted(request: Request, *permissions: str) -> bool:
    """Return True if the user has all these permissions, or PULLJOBS['API_ACCESS'] grants them.

    Its value "open" grants all of them, and "read-only" those to view.
    """
    access = settings().API_ACCESS
    if access == Access.OPEN:
        return True
    if access == Access.READ_ONLY and all(map(VIEWING.match, permissions)):
        return True
    return request.user.has_perms(permissions)
