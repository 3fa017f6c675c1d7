"""Options of a stream, and their checks."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from typing import Final

from pulljobs.errors import ConfigurationError
from pyspark_pulljobs.connecting import parse_dsn, refuse_unstorable
from pyspark_pulljobs.selecting import ADBC, READERS

OPTION_NAMES: Final = (
    "dsn", "channel", "consumer", "stream", "maxRowsPerBatch", "partitions", "lease", "maxLease",
    "reader", "outage",
)  # fmt: skip
IGNORED_OPTIONS: Final = frozenset({"path"})
MAX_NAME_CHARS: Final = 255
MAX_NUMBER: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """Options of one stream, checked. Spark sends it to the tasks, so it has no password."""

    dsn: str
    channel: str
    consumer: str
    stream: str
    """Name of the stream, which stays the same across restarts."""
    max_rows: int
    """Largest number of jobs in a batch."""
    partitions: int
    """Largest number of tasks that share a batch."""
    lease_duration: timedelta | None
    """Duration of the leases of batches, which are renewed, or None for the consumer's."""
    max_lease: timedelta
    """Longest time from a claim for which renewals can keep its batch."""
    outage: timedelta
    """Longest outage of the database before the query fails."""
    reader: str
    """Way to read rows: "adbc" or "copy"."""


def parse_options(options: Mapping[str, str]) -> StreamOptions:
    """Check the options of a stream, and return them.

    Raise ConfigurationError if an option is missing, unknown or out of bounds.
    """
    given = {name.lower(): value for name, value in options.items()}
    _refuse_unknown(given)
    refuse_unstorable(options)
    channel, consumer = (_parse_name(given, name) for name in ("channel", "consumer"))
    stream = given.get("stream") or f"{channel}/{consumer}"
    _check_length("stream", stream)
    return StreamOptions(
        dsn=parse_dsn(given),
        channel=channel,
        consumer=consumer,
        stream=stream,
        max_rows=_parse_number(given, "maxRowsPerBatch", 10_000),
        partitions=_parse_number(given, "partitions", os.cpu_count() or 1),
        lease_duration=timedelta(seconds=_parse_number(given, "lease", 1))
        if given.get("lease")
        else None,
        max_lease=timedelta(seconds=_parse_number(given, "maxLease", 900)),
        outage=timedelta(seconds=_parse_number(given, "outage", 120)),
        reader=_choose_reader(given),
    )


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in OPTION_NAMES}
    for name in given.keys() - known.keys() - IGNORED_OPTIONS:
        nearest = get_close_matches(name, known, 1, 0.5)
        hint = f"; did you mean {known[nearest[0]]!r}?" if nearest else ": remove it."
        raise ConfigurationError(f"{name!r} is no option of a stream{hint}")


def _parse_name(given: Mapping[str, str], name: str) -> str:
    if not (value := given.get(name, "")):
        raise ConfigurationError(f'Option "{name}" is missing: name the {name} to claim jobs from.')
    _check_length(name, value)
    return value


def _check_length(name: str, value: str) -> None:
    if len(value) > MAX_NAME_CHARS:
        raise ConfigurationError(
            f'Option "{name}" must have at most {MAX_NAME_CHARS} characters, not {len(value)}.'
        )


def _parse_number(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name.lower()) or str(default)
    if not text.isdecimal() or not 1 <= int(text) <= MAX_NUMBER:
        raise ConfigurationError(
            f'Option "{name}" must be a whole number from 1 to {MAX_NUMBER}, not {text!r}.'
        )
    return int(text)


def _choose_reader(given: Mapping[str, str]) -> str:
    if (reader := given.get("reader", ADBC)) not in READERS:
        choices = " or ".join(READERS)
        raise ConfigurationError(f'Option "reader" must be {choices}, not {reader!r}.')
    return reader


def seq_of(offset: Mapping[str, object], stream: str) -> int:
    """Return the number of the last batch of the stream that an offset of Spark includes.

    Raise ConfigurationError if the offset is of a stream with another name.
    """
    if offset.get("stream") != stream:
        raise ConfigurationError(
            f"The checkpoint belongs to stream {offset.get('stream')!r}, not {stream!r}: set the "
            'option "stream" to that name, or use a new checkpoint.'
        )
    return int(str(offset["seq"]))
