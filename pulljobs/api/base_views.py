"""What all endpoints of the broker protocol share."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.db import DataError
from django.http import HttpRequest
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from pulljobs.api import exceptions, request_ids
from pulljobs.api.authentication import ConsumerTokens, find, find_consumer, users
from pulljobs.api.permissions import ModelPermission, Needs, PullConsumer
from pulljobs.api.throttling import CallerThrottle
from pulljobs.models import Channel, Consumer


class AlwaysJson(BaseContentNegotiation):
    """The protocol looks at neither Accept nor `?format=`."""

    def select_parser(self, request: Request, parsers: Any) -> None:
        return None

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        first = next(iter(renderers))
        return first, first.media_type or ""


class ProtocolView(APIView):
    """A method that is not allowed is told first, then it is looked at who calls."""

    renderer_classes = [JSONRenderer]
    content_negotiation_class = AlwaysJson
    throttle_classes = [CallerThrottle]
    http_method_names = ["get", "post", "put", "delete", "options"]  # HEAD would come with GET

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        if request.method not in self.allowed_methods:
            self.http_method_not_allowed(request)
        if request.method != "OPTIONS":
            super().initial(request, *args, **kwargs)

    def perform_authentication(self, request: Request) -> None:
        """A name that the database can't hold (NUL) is nobody's."""
        try:
            super().perform_authentication(request)
        except DataError as error:
            raise AuthenticationFailed from error

    def options(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Response:
        """The Allow header, for whoever asks."""
        return Response()

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        final = super().finalize_response(request, response, *args, **kwargs)
        final[request_ids.HEADER] = request_ids.of(request._request)
        final.headers.setdefault("Cache-Control", "no-store")  # Tokens and payloads are in many.
        return final

    def get_authenticate_header(self, request: Request) -> str:
        """How to log in, by the first way that has a word for it: a session has none."""
        schemes = (one.authenticate_header(request) for one in self.get_authenticators())
        return next(filter(None, schemes), "")

    def get_exception_handler(self) -> Callable[..., Any]:
        return exceptions.as_text


class ProblemsTold:
    """For views of part B: refusals are application/problem+json."""

    def get_exception_handler(self) -> Callable[..., Any]:
        return exceptions.as_problem


class PullConsumerView(ProtocolView):
    """For the consumer that the URL names: its jobs."""

    authentication_classes = [ConsumerTokens]
    permission_classes = [PullConsumer]


class UserView(ProtocolView):
    """For users of Django: who may do it is told by `needs`."""

    needs: Needs = {}
    permission_classes = [ModelPermission]

    def get_authenticators(self) -> list[Any]:
        return users()


def channel_of(names: Mapping[str, str]) -> Channel:
    """The channel that the URL names; 404 if there is none."""
    channel = find(Channel, names["channel"])
    if channel is None:
        raise exceptions.no_channel()
    return channel


def consumer_of(names: Mapping[str, str]) -> Consumer:
    """The consumer that the URL names; 404 if there is none."""
    consumer = find_consumer(channel_of(names), names["consumer"])
    if consumer is None:
        raise exceptions.no_consumer()
    return consumer
