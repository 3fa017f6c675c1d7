"""Route openapi.json: the document that is checked in, without authentication."""

import json
from functools import cache
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs.api import DOCUMENT
from pulljobs.api.base_views import ProtocolView


class OpenApi(ProtocolView):
    authentication_classes = []

    def get(self, request: Request) -> Response:
        mounted_at = request.path.removesuffix("/openapi.json")
        return Response({**_load_document(), "servers": [{"url": mounted_at or "/"}]})


@cache
def _load_document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(DOCUMENT.read_text("utf-8"))
    return document
