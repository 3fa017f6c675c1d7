from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from pulljobs.api import exceptions
from pulljobs.api.authentication import caller
from pulljobs.models import Consumer


class PullConsumer(BasePermission):
    """Jobs of a push consumer are not for taking."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        if caller(request).type != Consumer.Type.PULL:
            raise exceptions.push_consumer()
        return True
