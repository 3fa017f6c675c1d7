"""Publishes of DataFrames as messages of a channel, from a process with Django."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pulljobs.conf import Settings, settings
from pulljobs.engine import telemetry
from pulljobs.errors import ConfigurationError
from pulljobs.lake.models import BulkPublish
from pulljobs.lake.spark import session
from pulljobs.storage import sessions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pyspark_pulljobs.publish_ledger import Publish

UNBOUNDED: Final = dict.fromkeys(
    ("maxPayloadBytes", "maxHeaders", "maxHeaderBytes"), str(2**31 - 1)
)
"""Largest values of the options that limit messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Channel of a bulk publish, and its other arguments except the rows and the publish id."""

    channel: str
    consumer: str | None = None
    """Name of the only consumer that gets jobs, or None for all consumers of the channel."""
    producer: str | None = None
    mode: str = "atomic"
    """"atomic" for one transaction in all, or "chunked" for one for each task."""
    on_bad_row: str = "stop"
    """"stop" to raise an error, or "reject" to store rows that are not valid messages."""
    was_accepted: bool = False
    """True if the messages were published before, so that limits do not apply again."""

    def options(self, publish_id: str) -> dict[str, str]:
        """Return options of Spark's data source for this publish, with the project's limits."""
        given = {
            "channel": self.channel,
            "consumer": self.consumer,
            "producer": self.producer,
            "mode": self.mode,
            "onBadRow": self.on_bad_row,
            "publishId": publish_id,
        }
        chosen = {name: value for name, value in given.items() if value is not None}
        limits = UNBOUNDED if self.was_accepted else {}
        return {"dsn": session.dsn(), **bounds(settings()), **limits, **chosen}


def bounds(project: Settings) -> dict[str, str]:
    """Return the project's settings that limit messages, as options of Spark's data source."""
    return {
        "maxPayloadBytes": str(project.MAX_PAYLOAD_BYTES),
        "maxHeaders": str(project.MAX_HEADERS),
        "maxHeaderBytes": str(project.MAX_HEADER_BYTES),
        "dedupeWindow": str(project.DEDUPE_WINDOW.total_seconds()),
    }


def publish(frame: "DataFrame", target: Target, publish_id: str) -> tuple[BulkPublish, bool]:
    """Publish a DataFrame's rows. Return the publish's record, and True if it was done before.

    If it was done before under the same id, nothing is published. Unless a pooler is in between, no
    cleanup aborts the publish while it runs. Raise ConfigurationError if the id was used for
    another channel, consumer or mode.
    """
    options = {**target.options(publish_id), "guarded": _choose_guarded()}
    with _guarded(options) as publish:
        if not publish.is_done:
            frame.write.format("pulljobs").mode("append").options(**options).save()
    done = BulkPublish.objects.using(settings().DATABASE).get(publish_id=publish_id)
    if not publish.is_done:
        telemetry.emit(telemetry.JobsPublished(target.channel, done.messages, done.jobs))
    return done, publish.is_done


def derive_id(target: Target, paths: Sequence[str]) -> str:
    """Return a publish id made of channel, consumer, and path, size and change time of each file.

    So the same files are published once. Raise ConfigurationError if a file cannot be read here.
    """
    parts = [f"{target.channel}/{target.consumer or ''}"]
    for path in sorted(paths):
        try:
            stat = Path(path).stat()
        except OSError as error:
            raise ConfigurationError(
                f"{path} cannot be read here ({error.strerror}): name a file, or give --publish-id."
            ) from error
        parts.append(f"{Path(path).resolve()} {stat.st_size} {stat.st_mtime_ns}")
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return f"files-{digest[:32]}"


def _choose_guarded() -> str:
    """Return "true" if sessions can hold the publish by an advisory lock, else "false".

    They cannot behind a pooler, which may give the session to other clients.
    """
    return "false" if sessions.behind_pooler(settings().DATABASE) else "true"


@contextmanager
def _guarded(options: Mapping[str, str]) -> Iterator["Publish"]:
    """Open the publish, and hold a lock on it within the block, so that no process aborts it.

    Afterwards abort abandoned publishes, and drop their staging tables.
    """
    from pyspark_pulljobs import bulk_writer, requests, staging
    from pyspark_pulljobs.database_session import open_session

    request = requests.parse_request(options)
    try:
        with open_session(request.dsn) as held:
            address = requests.find_address(held, request)
            yield bulk_writer.open_publish(held, request, address)
    finally:
        with open_session(request.dsn) as after:
            staging.clean(after)
