"""Base classes of the views of the broker protocol and the lease protocol."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NoReturn

from django.contrib.auth.models import AnonymousUser
from django.db import DataError, connections
from django.http import HttpRequest, QueryDict
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from pulljobs.api import error_answers, exceptions, middleware
from pulljobs.api.authentication import (
    ConsumerTokens,
    find_consumer,
    find_row,
    user_authenticators,
)
from pulljobs.api.permissions import ModelPermission, Needs, PullConsumer
from pulljobs.api.throttling import CallerThrottle
from pulljobs.conf import settings
from pulljobs.engine.deadlines import WorkDeadline
from pulljobs.models import Channel, Consumer

REQUEST_SECONDS: Final = 60.0
"""Time limit of a request's work with the database, for a server that no longer answers."""


class Unread(BaseParser):
    """Parser that leaves a body for the view to read, and returns no fields.

    DRF's CSRF check of a user with a session would otherwise read the body of a POST.
    """

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> QueryDict:
        return QueryDict()


class AlwaysJson(BaseContentNegotiation):
    """Content negotiation of DRF that ignores the header Accept and `?format=`: JSON always."""

    def select_parser(self, request: Request, parsers: Any) -> BaseParser:
        return Unread()

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        first = next(iter(renderers))
        return first, first.media_type or ""


class ProtocolView(APIView):
    """Base of all views of DRF in the API.

    It refuses a method that is not allowed before it authenticates the caller. The default
    classes in the project's REST_FRAMEWORK do not apply to it.
    """

    permission_classes = []
    versioning_class = None
    renderer_classes = [JSONRenderer]
    content_negotiation_class = AlwaysJson
    throttle_classes = [CallerThrottle]
    http_method_names = ["get", "post", "put", "delete", "options"]  # HEAD would come with GET

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Answer a request, with 503 if a statement still runs after REQUEST_SECONDS."""
        with WorkDeadline(connections[settings().DATABASE], REQUEST_SECONDS):
            return super().dispatch(request, *args, **kwargs)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        if request.method not in self.allowed_methods:
            raise exceptions.not_allowed(request.method or "")
        if request.method != "OPTIONS":
            super().initial(request, *args, **kwargs)

    def throttled(self, request: Request, wait: float) -> NoReturn:
        raise exceptions.throttled(wait)

    def perform_authentication(self, request: Request) -> None:
        """Authenticate the caller. Refuse a user name that the database rejects: one with NUL."""
        try:
            super().perform_authentication(request)
        except DataError as error:
            raise AuthenticationFailed from error
        if request.user is None:
            request.user = AnonymousUser()  # type: ignore[unreachable]  # UNAUTHENTICATED_USER of DRF may be None

    def options(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Response:
        """Answer with the Allow header, without authentication."""
        return Response()

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        final = super().finalize_response(request, response, *args, **kwargs)
        final[middleware.REQUEST_ID] = middleware.ensure_id(request._request)
        final.headers.setdefault(
            "Cache-Control", "no-store"
        )  # Many answers have tokens or payloads.
        return final

    def get_authenticate_header(self, request: Request) -> str:
        """Return the WWW-Authenticate header for a 401, of the first authenticator that has one.

        DRF asks only the first authenticator. A session, for example, has none. If no authenticator
        has a header, the result is empty, and DRF answers 403.
        """
        schemes = (
            authenticator.authenticate_header(request)
            for authenticator in self.get_authenticators()
        )
        return next(filter(None, schemes), "")

    def get_exception_handler(self) -> Callable[..., Any]:
        return error_answers.as_text


class ProblemMixin:
    """Mixin for views of the lease protocol: it answers refusals as application/problem+json."""

    def get_exception_handler(self) -> Callable[..., Any]:
        return error_answers.as_problem


class PullConsumerView(ProtocolView):
    """Base of views for the pull consumer in the URL, which sends its tokens."""

    authentication_classes = [ConsumerTokens]
    permission_classes = [PullConsumer]


class UserView(ProtocolView):
    """Base of views for users of Django that have the permissions in `needs` for the method."""

    needs: Needs = {}
    permission_classes = [ModelPermission]

    def get_authenticators(self) -> list[Any]:
        return user_authenticators()


def channel_of(names: Mapping[str, str]) -> Channel:
    """Return the channel with the name in the URL. Raise a refusal (404) if there is none."""
    channel = find_row(Channel, names["channel"])
    if channel is None:
        raise exceptions.no_channel()
    return channel


def consumer_of(names: Mapping[str, str]) -> Consumer:
    """Return the consumer with the names in the URL. Raise a refusal (404) if there is none."""
    consumer = find_consumer(channel_of(names), names["consumer"])
    if consumer is None:
        raise exceptions.no_consumer()
    return consumer


class UnknownPath(ProtocolView):
    """View that answers 404 for paths of the API without a route, whatever the method."""

    authentication_classes = []
    schema = None

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        raise exceptions.unknown_path()
