"""Descriptions of the API's operations as data, in the terms of drf-spectacular."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema

from pulljobs.api.bodies import ProblemBody
from pulljobs.api.openapi import BROKER
from pulljobs.api.openapi.schemas import refer

Auth = Sequence[Mapping[str, list[str]]]
"""Alternative ways to authenticate, each with the security schemes that it combines."""
ANYONE: Final[Auth] = ({},)
USERS: Final[Auth] = (
    {"basic": []},
    {"token": []},
    {"session": []},
)
CHANNEL: Final[Auth] = ({"channelToken": []},)
CONSUMER: Final[Auth] = ({"channelToken": [], "consumerToken": []},)
PRODUCER: Final[Auth] = ({"channelToken": [], "producer": [], "producerToken": []},)

ALWAYS: Final = (429, 503)
REFUSED: Final = {
    400: "Malformed, or a transition that does not exist. Nothing changed.",
    401: "No login, an unknown consumer or producer, or a job of another consumer.",
    403: "A wrong token, or a permission is missing.",
    404: "There is no such row, job or message.",
    409: "The state of the job or the consumer does not permit it. Nothing changed.",
    410: "The consumer was deleted.",
    412: "The precondition failed, jobs are pushed to the consumer, or the time is too soon.",
    413: "The body is too large.",
    415: "The Content-Type is wrong.",
    429: "Too many requests, or too many at once: repeat after Retry-After seconds.",
    501: "prometheus-client is not installed.",
    503: "The database can't be reached or keeps a row locked: repeat after Retry-After seconds.",
}
REFUSALS_OF: Final[Mapping[str, tuple[int, ...]]] = {
    str(USERS): (401, 403),
    str(CHANNEL): (403, 404),
    str(CONSUMER): (401, 403, 404, 412),
    str(PRODUCER): (401, 403, 404),
}


@dataclass(frozen=True, kw_only=True)
class ApiOperation:
    """Operation in the sense of OpenAPI: a method of a route, with its bodies and statuses."""

    summary: str
    auth: Auth = USERS
    answer: Any = None
    """Declared body of the successful answer, or its schema, or None if it has no body."""
    status: int = 200
    media_type: str = "application/json"
    body: Any = None
    """Declared bodies or schemas of the request by media type, or None if it has none."""
    parameters: Sequence[OpenApiParameter] = ()
    refusals: Sequence[int] = ()
    """Statuses of refusals, in addition to those that follow from `auth`."""
    links: Mapping[str, Any] = field(default_factory=dict)
    protocol: str = BROKER

    def decorator(self, route: str, method: str) -> Callable[[Any], Any]:
        """Return the decorator that describes a method of a view to drf-spectacular."""
        return extend_schema(
            operation_id=f"{method.lower()}-{route}",
            tags=[self.protocol],
            summary=self.summary,
            auth=list(self.auth),  # type: ignore[arg-type]  # typed for names, written as they are
            parameters=[*self.parameters, *self._headers()],
            request=None if self.body is None else _refer_all(self.body),
            responses=dict(self._responses()),
        )

    @property
    def statuses(self) -> list[int]:
        """Status of success, then the statuses of all refusals."""
        refusals = {*ALWAYS, *REFUSALS_OF.get(str(self.auth), ()), *self.refusals}
        return [self.status, *sorted(refusals)]

    def _responses(self) -> list[tuple[Any, Any]]:
        refused, media_type = self._refused
        return [
            ((self.status, self.media_type), OpenApiResponse(refer(self.answer), self.summary)),
            *(
                ((status, media_type), OpenApiResponse(refused, REFUSED[status]))
                for status in self.statuses[1:]
            ),
        ]

    @property
    def _refused(self) -> tuple[Any, str]:
        if self.protocol != BROKER:
            return refer(ProblemBody), "application/problem+json"
        return OpenApiTypes.STR, "text/plain; charset=utf-8"

    def _headers(self) -> list[OpenApiParameter]:
        statuses = self.statuses
        headers = [answer_header("X-Request-ID", "Id of the request, or a new one.", statuses)]
        for status in {429, 503} & set(statuses):
            headers.append(answer_header("Retry-After", "Seconds.", [status]))
        return headers


def _refer_all(body: Mapping[str, Any]) -> dict[str, Any]:
    return {media_type: refer(declared) for media_type, declared in body.items()}


def answer_header(
    name: str, text: str, statuses: Sequence[int], *, required: bool = True
) -> OpenApiParameter:
    """Return the description of a header of the answers with these statuses.

    Without `required` some of them may lack it.
    """
    return OpenApiParameter(
        name,
        OpenApiTypes.STR,
        OpenApiParameter.HEADER,
        required=required,
        response=list(statuses),
        description=text,
    )


def header(name: str, text: str, **options: Any) -> OpenApiParameter:
    """Return the description of a header that requests may have."""
    return OpenApiParameter(
        name, OpenApiTypes.STR, OpenApiParameter.HEADER, description=text, **options
    )


def query(name: str, text: str, type: Any = OpenApiTypes.STR) -> OpenApiParameter:
    """Return the description of a query parameter."""
    return OpenApiParameter(name, type, OpenApiParameter.QUERY, description=text)
