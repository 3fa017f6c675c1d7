"""Paths below ours that nothing is at."""

from typing import Any

from rest_framework.request import Request

from pulljobs.api import exceptions
from pulljobs.api.base_views import ProtocolView


class UnknownPath(ProtocolView):
    """404 by any method."""

    authentication_classes = []
    schema = None

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        raise exceptions.unknown_path()
