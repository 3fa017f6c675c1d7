"""Declarations of JSON bodies: how they are checked, rendered and described in OpenAPI.

A body is declared once, as a `TypedDict`. Its keys are the names in JSON, and `Annotated` adds
annotations: bounds, formats and help texts.

    class RenewBody(TypedDict, total=False):
        Seconds: Annotated[float, Bounds(0.001, YEAR)] | None

- `reading.read_body(RenewBody, ...)` checks a request against it. With the decorator `closed`, a
  request with another field is refused. Otherwise that field is ignored.
- An answer is a dictionary in the code that returns it: mypy compares its keys and types with the
  declaration, so that rendering a page of jobs costs no more than making the dictionaries.
- `openapi/schemas.py` makes the component of the OpenAPI document, without the suffix `Body`.

The client has no Django and reads the answers of servers of any version: `pulljobs.client.bodies`
is a declaration of its own.
"""

import base64
import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache, lru_cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    NotRequired,
    Required,
    TypedDict,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from pulljobs.conf import settings
from pulljobs.engine.encodings import EPOCH
from pulljobs.models import Consumer

YEAR: Final = 365 * 86_400
"""Seconds of a year of 365 days."""
_RFC_3339: Final = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE
)

M = TypeVar("M")


class Bounds(NamedTuple):
    """Annotation of a number: its smallest and its largest value."""

    least: float
    most: float = math.inf


class UpTo(NamedTuple):
    """Annotation of a number: the setting with its largest value. Larger ones are refused (409)."""

    setting: str

    @property
    def limit(self) -> float:
        """Value of the setting in this project. A duration is in seconds."""
        return as_number(getattr(settings(), self.setting))


class ItemsUpTo(NamedTuple):
    """Annotation of a list: the setting with its largest number of items. More are refused."""

    setting: str


class TextUpTo(NamedTuple):
    """Annotation of a text: its largest length, and a regular expression for OpenAPI only.

    With the expression, the text must be printable.
    """

    length: int
    pattern: str | None = None


class Format(NamedTuple):
    """Annotation of a text: the name of its format in OpenAPI. Only "date-time" is checked."""

    name: str


class Help(NamedTuple):
    """Annotation of a field: a sentence that describes it in the OpenAPI document."""

    text: str


class Problem(NamedTuple):
    """Annotation of a field: what a refusal says that its value must be. It checks no value."""

    text: str


Time = Annotated[str, Format("date-time")]
"""Time by RFC 3339, in answers always in UTC."""
Natural = Annotated[int, Bounds(0)]
PriorityLevel = Annotated[int, Bounds(-32_768, 32_767)]
CostNumber = Annotated[int, Bounds(1, 1_000_000)]
ConsumerType = Consumer.Type
HeaderMap = dict[str, str]


class ProblemBody(TypedDict):
    type: str
    title: str
    status: int
    detail: str
    code: str


@dataclass(frozen=True, slots=True)
class Field:
    """Field of a declared body, with its type and the annotations from `Annotated`."""

    name: str
    key: str
    """Name in lower case, by which a given field is found."""
    kind: Any
    """Type of the value, without `None` and without annotations."""
    marks: tuple[Any, ...]
    is_required: bool
    is_nullable: bool

    def mark(self, mark_type: type[M]) -> M | None:
        """Return the field's annotation of this class, or None if it has none."""
        return next((mark for mark in self.marks if isinstance(mark, mark_type)), None)


def closed(body: Any) -> Any:
    """Decorate a declared body so that fields that it does not declare are refused as misspelt.

    This does not apply to the bodies in its fields.
    """
    body.__closed__ = True
    return body


def is_closed(body: Any) -> bool:
    return getattr(body, "__closed__", None) is True


@cache
def fields_of(body: Any) -> tuple[Field, ...]:
    """Return the fields of a declared body, in the order of its declaration."""
    return tuple(
        _field(name, hint, is_required=name in body.__required_keys__)
        for name, hint in get_type_hints(body, include_extras=True).items()
    )


def _field(name: str, hint: Any, *, is_required: bool) -> Field:
    bare, marks, is_nullable = unwrap(hint)
    return Field(name, name.lower(), bare, marks, is_required, is_nullable)


def unwrap(hint: Any) -> tuple[Any, tuple[Any, ...], bool]:
    """Split a type hint into its type, its annotations, and True if None is allowed."""
    marks: list[Any] = []
    is_nullable = False
    while True:
        origin, arguments = get_origin(hint), get_args(hint)
        if origin is Annotated:
            marks += arguments[1:]
        elif origin in (Union, UnionType):
            is_nullable = True
            arguments = tuple(argument for argument in arguments if argument is not NoneType)
        elif origin not in (Required, NotRequired):
            return hint, tuple(marks), is_nullable
        hint = arguments[0]


def is_choice(kind: Any) -> bool:
    """Return True if a type is a `Literal` or an enumeration."""
    return get_origin(kind) is Literal or (isinstance(kind, type) and issubclass(kind, Enum))


def choices_of(kind: Any) -> list[Any]:
    """Return the allowed values of a `Literal` or an enumeration, as they are in JSON."""
    return list(get_args(kind)) or [member.value for member in kind]


def describe(field: Field) -> str:
    """Return what the value of a field must be, as in "must be true or false", for refusals."""
    if (problem := field.mark(Problem)) is not None:
        return problem.text
    if is_typeddict(field.kind):
        return "must be an object"
    if get_origin(field.kind) is list:
        return "must be a list of objects"
    if get_origin(field.kind) is dict:
        return "must be an object of texts"
    if is_choice(field.kind):
        return f"must be one of {', '.join(choices_of(field.kind))}"
    bounds = _describe_bounds(field.mark(Bounds))
    return {
        int: f"must be a whole number{bounds}",
        float: f"must be a number of seconds{bounds}",
        bool: "must be true or false",
    }.get(field.kind, f"must be text{_describe_length(field.mark(TextUpTo))}")


def _describe_bounds(bounds: Bounds | None) -> str:
    if bounds is None:
        return ""
    return f" from {bounds.least:g}" + ("" if bounds.most == math.inf else f" to {bounds.most:,}")


def _describe_length(limit: TextUpTo | None) -> str:
    return "" if limit is None else f" of at most {limit.length} characters, without NUL"


def as_number(limit: Any) -> float:
    """Return the value of a setting as a number for JSON, a timedelta in seconds."""
    return float(limit.total_seconds()) if hasattr(limit, "total_seconds") else limit


def render_payload(payload: bytes) -> tuple[str, Literal["base64"] | None]:
    """Return a payload as text and None, or, if it is not UTF-8, as base64 and "base64"."""
    try:
        return payload.decode(), None
    except UnicodeDecodeError:
        return base64.b64encode(payload).decode(), "base64"


def render_time(time: datetime) -> str:
    """Convert an aware time to UTC text by RFC 3339, such as 2030-01-31T12:00:00Z."""
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def render_stored_time(sent: bytes) -> str:
    """Convert the bytes of PostgreSQL's `timestamptz_send` to UTC text by RFC 3339."""
    seconds, microseconds = divmod(int.from_bytes(sent, signed=True), 1_000_000)
    second = _render_second(seconds)
    return f"{second}.{microseconds:06}Z" if microseconds else f"{second}Z"


@lru_cache(1_000)
def _render_second(seconds: int) -> str:
    """Return the time so many seconds after PostgreSQL's epoch as text, without a time zone.

    Results are cached, because messages of one claim share few values.
    """
    return (EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()


def parse_time(text: str) -> datetime:
    """Return the time in UTC of a text by RFC 3339. Raise ValueError for any other text."""
    if not _RFC_3339.fullmatch(text):
        raise ValueError(f"{text!r} is not a time such as 2030-01-31T12:00:00Z.")
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text!r} is not a time in UTC.") from error
