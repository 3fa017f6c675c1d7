"""An operation as data, in the terms of drf-spectacular."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema

from pulljobs.api.leases import bodies

Auth = Sequence[Mapping[str, list[str]]]
"""Alternatives, each of schemes that go together."""

ANYBODY: Final[Auth] = ({},)
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
    400: "Malformed, or a move that does not exist; nothing changed.",
    401: "Nobody known: no login, an unknown consumer or producer, or another's job.",
    403: "A wrong token, or a permission is missing.",
    404: "There is none.",
    409: "It stands against it; nothing changed.",
    410: "The consumer was deleted.",
    412: "The precondition failed.",
    413: "Too large.",
    415: "Of another type than it takes.",
    429: "Too often, or too many at once: again after Retry-After seconds.",
    501: "prometheus-client is not installed.",
    503: "The database can't be reached: again after Retry-After seconds.",
}
REFUSALS_OF: Final[Mapping[str, tuple[int, ...]]] = {
    str(USERS): (401, 403),
    str(CHANNEL): (403, 404),
    str(CONSUMER): (401, 403, 404, 412),
    str(PRODUCER): (401, 403, 404),
}


@dataclass(frozen=True, kw_only=True)
class Operation:
    summary: str
    auth: Auth = USERS
    answer: Any = None
    """The body of success: a serializer, a schema, or none."""
    status: int = 200
    media_type: str = "application/json"
    body: Any = None
    """By media type."""
    parameters: Sequence[OpenApiParameter] = ()
    refusals: Sequence[int] = ()
    """Beside those that go with `auth`."""
    links: Mapping[str, Any] = field(default_factory=dict)
    part: str = "broker protocol"

    def decorator(self, route: str, method: str) -> Callable[[Any], Any]:
        return extend_schema(
            operation_id=f"{method.lower()}-{route}",
            tags=[self.part],
            summary=self.summary,
            auth=list(self.auth),  # type: ignore[arg-type]  # typed for names, written as they are
            parameters=[*self.parameters, *self._headers()],
            request=self.body,
            responses=dict(self._responses()),
        )

    @property
    def statuses(self) -> list[int]:
        refusals = {*ALWAYS, *REFUSALS_OF.get(str(self.auth), ()), *self.refusals}
        return [self.status, *sorted(refusals)]

    def _responses(self) -> list[tuple[Any, Any]]:
        refused, media_type = self._refused
        return [
            ((self.status, self.media_type), OpenApiResponse(self.answer, self.summary)),
            *(
                ((status, media_type), OpenApiResponse(refused, REFUSED[status]))
                for status in self.statuses[1:]
            ),
        ]

    @property
    def _refused(self) -> tuple[Any, str]:
        if self.part == PART_B:
            return bodies.Problem, "application/problem+json"
        return OpenApiTypes.STR, "text/plain; charset=utf-8"

    def _headers(self) -> list[OpenApiParameter]:
        statuses = self.statuses
        headers = [answer_header("X-Request-ID", "Yours, or a new one.", statuses)]
        for status in {429, 503} & set(statuses):
            headers.append(answer_header("Retry-After", "Seconds.", [status]))
        return headers


PART_B: Final = "pulling with leases"


def answer_header(
    name: str, text: str, statuses: Sequence[int], *, required: bool = True
) -> OpenApiParameter:
    return OpenApiParameter(
        name,
        OpenApiTypes.STR,
        OpenApiParameter.HEADER,
        required=required,
        response=list(statuses),
        description=text,
    )


def header(name: str, text: str, **options: Any) -> OpenApiParameter:
    return OpenApiParameter(
        name, OpenApiTypes.STR, OpenApiParameter.HEADER, description=text, **options
    )


def query(name: str, text: str, type: Any = OpenApiTypes.STR) -> OpenApiParameter:
    return OpenApiParameter(name, type, OpenApiParameter.QUERY, description=text)
