"""Options of a bulk publish, and the ids of the channel, consumer and producer that they name."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, Final
from uuid import uuid4

from pulljobs.errors import ConfigurationError, UnknownChannel
from pyspark_pulljobs.connecting import parse_dsn, refuse_unstorable
from pyspark_pulljobs.database_session import Session

ATOMIC: Final = "atomic"
CHUNKED: Final = "chunked"
STOP: Final = "stop"
REJECT: Final = "reject"
BOUND_OPTIONS: Final = {
    "maxPayloadBytes": "MAX_PAYLOAD_BYTES",
    "maxHeaders": "MAX_HEADERS",
    "maxHeaderBytes": "MAX_HEADER_BYTES",
    "dedupeWindow": "DEDUPE_WINDOW",
}
"""Settings by the options that replace them: whole numbers, and the window in seconds."""
OPTION_NAMES: Final = (
    "dsn", "channel", "consumer", "producer", "mode", "publishId", "onBadRow", "guarded",
    *BOUND_OPTIONS,
)  # fmt: skip
MAX_NUMBER: Final = 2**31
IGNORED_OPTIONS: Final = frozenset({"checkpointlocation", "path", "topic", "queryname"})
"""Options that Spark passes with a write, which are ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits of messages, in fields with the names of the project's settings.

    `pulljobs.lake.spark` passes the project's values as options. The defaults are those of the
    settings.
    """

    MAX_PAYLOAD_BYTES: int = 1024 * 1024
    MAX_HEADERS: int = 64
    MAX_HEADER_BYTES: int = 16 * 1024
    DEDUPE_WINDOW: timedelta = timedelta(minutes=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Options of one publish, checked. Spark sends it to the tasks, so it has no password."""

    dsn: str
    channel: str
    consumer: str | None
    producer: str | None
    mode: str
    publish_id: str
    on_bad_row: str
    guarded: bool
    """True if Spark's driver holds a lock. Once no session does, the publish is abandoned."""
    bounds: Bounds

    @property
    def stops_at_bad_rows(self) -> bool:
        """True if a row that is not a valid message stops the publish."""
        return self.on_bad_row == STOP


@dataclass(frozen=True, slots=True)
class Address:
    """Ids of the channel, consumer and producer that a request names, or None if it names none."""

    channel: str
    channel_id: int
    consumer_id: int | None
    producer_id: int | None


def parse_request(options: Mapping[str, str]) -> Request:
    """Check the options of a publish, and return them.

    Raise ConfigurationError if an option is missing, unknown or out of bounds.
    """
    given = {name.lower(): value for name, value in options.items()}
    _refuse_unknown(given)
    refuse_unstorable(options)
    if not given.get("channel"):
        raise ConfigurationError('Option "channel" is missing: name the channel to publish on.')
    publish_id = given.get("publishid") or uuid4().hex
    if len(publish_id) > 255:
        raise ConfigurationError(
            f'Option "publishId" must have at most 255 characters, not {len(publish_id)}.'
        )
    return Request(
        dsn=parse_dsn(given),
        channel=given["channel"],
        consumer=given.get("consumer") or None,
        producer=given.get("producer") or None,
        mode=_choose(given, "mode", (ATOMIC, CHUNKED)),
        publish_id=publish_id,
        on_bad_row=_choose(given, "onBadRow", (STOP, REJECT)),
        guarded=_choose(given, "guarded", ("false", "true")) == "true",
        bounds=_parse_bounds(given),
    )


def find_address(session: Session, request: Request) -> Address:
    """Read the ids of the channel, consumer and producer that a request names.

    Raise UnknownChannel, or ConfigurationError for a consumer or producer that does not exist.
    """
    names = {name: getattr(request, name) for name in ("channel", "consumer", "producer")}
    [(channel_id, consumer_id, producer_id)] = session.run("addressed", names)
    if channel_id is None:
        raise UnknownChannel(request.channel)
    if request.consumer is not None and consumer_id is None:
        raise ConfigurationError(
            f"There is no consumer {request.consumer!r} of channel {request.channel!r}: "
            "create it first."
        )
    if request.producer is not None and producer_id is None:
        raise ConfigurationError(f"There is no producer {request.producer!r}: create it first.")
    return Address(request.channel, channel_id, consumer_id, producer_id)


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in OPTION_NAMES}
    for name in given.keys() - known.keys() - IGNORED_OPTIONS:
        nearest = get_close_matches(name, known, 1, 0.4)
        hint = f"; did you mean {known[nearest[0]]!r}?" if nearest else ": remove it."
        raise ConfigurationError(f"{name!r} is no option of a publish{hint}")


def _choose(given: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """Return the value of an option in lower case, by default the first of `choices`.

    Raise ConfigurationError for a value that is not among them.
    """
    value = given.get(name.lower(), choices[0]).lower()
    if value not in choices:
        raise ConfigurationError(f'Option "{name}" must be {" or ".join(choices)}, not {value!r}.')
    return value


def _parse_bounds(given: Mapping[str, str]) -> Bounds:
    numbers = {
        name: _parse_number(option, given[option.lower()])
        for option, name in BOUND_OPTIONS.items()
        if option.lower() in given
    }
    window = numbers.pop("DEDUPE_WINDOW", None)
    bounds = Bounds(**numbers)
    return bounds if window is None else replace(bounds, DEDUPE_WINDOW=timedelta(seconds=window))


def _parse_number(option: str, text: str) -> Any:
    try:
        number = float(text) if option == "dedupeWindow" else int(text)
        if 0 <= number < MAX_NUMBER:
            return number
    except ValueError:
        number = None
    raise ConfigurationError(
        f'Option "{option}" must be a number from 0 to {MAX_NUMBER - 1}, not {text!r}.'
    )
