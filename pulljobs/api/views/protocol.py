"""What the endpoints of pull consumers share."""

import re
import uuid
from collections.abc import Callable, Iterable
from typing import Any, Final

from django.http import HttpRequest
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from pulljobs.api import exceptions
from pulljobs.api.authentication import ConsumerTokens
from pulljobs.api.permissions import PullConsumer

REQUEST_ID: Final = "X-Request-ID"
_ECHOED: Final = re.compile(r"[\x20-\x7e]{1,200}")


class AlwaysJson(BaseContentNegotiation):
    """The protocol looks at neither Accept nor `?format=`."""

    def select_parser(self, request: Request, parsers: Any) -> None:
        return None

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        first = next(iter(renderers))
        return first, first.media_type or ""


class PullConsumerView(APIView):
    """A method that is not allowed is told first, then the tokens are looked at."""

    authentication_classes = [ConsumerTokens]
    permission_classes = [PullConsumer]
    renderer_classes = [JSONRenderer]
    content_negotiation_class = AlwaysJson
    http_method_names = ["get", "post", "options"]  # without HEAD, which Django would add to GET

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        if request.method not in self.allowed_methods:
            self.http_method_not_allowed(request)
        if request.method != "OPTIONS":
            super().initial(request, *args, **kwargs)

    def options(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Response:
        """The Allow header, for whoever asks."""
        return Response()

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        final = super().finalize_response(request, response, *args, **kwargs)
        given = request.headers.get(REQUEST_ID, "")
        final[REQUEST_ID] = given if _ECHOED.fullmatch(given) else uuid.uuid4().hex
        return final

    def get_exception_handler(self) -> Callable[..., Any]:
        return exceptions.as_text
