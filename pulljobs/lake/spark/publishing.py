"""Publishing what Spark has read as messages of a channel."""

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
from pulljobs.storage import statements

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pyspark_pulljobs.ledger import Opened

UNBOUNDED: Final = dict.fromkeys(
    ("maxPayloadBytes", "maxHeaders", "maxHeaderBytes"), str(2**31 - 1)
)
"""The most that these options can say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a publish goes, and how."""

    channel: str
    consumer: str | None = None
    """The only one; None: each of the channel."""
    producer: str | None = None
    mode: str = "atomic"
    on_bad_row: str = "stop"
    was_accepted: bool = False
    """Its messages were published before: there are no bounds for them any more."""

    def options(self, publish_id: str) -> dict[str, str]:
        """Of a write in this project: its database, and the bounds that its settings have."""
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


def bounds(of: Settings) -> dict[str, str]:
    """The settings that bound messages, as options."""
    return {
        "maxPayloadBytes": str(of.MAX_PAYLOAD_BYTES),
        "maxHeaders": str(of.MAX_HEADERS),
        "maxHeaderBytes": str(of.MAX_HEADER_BYTES),
        "dedupeWindow": str(of.DEDUPE_WINDOW.total_seconds()),
    }


def publish(frame: "DataFrame", target: Target, publish_id: str) -> tuple[BulkPublish, bool]:
    """The ledger's row, and whether it was done before; while this runs nobody cleans it up.

    ConfigurationError if the id was used for something else.
    """
    options = {**target.options(publish_id), "guarded": _guards()}
    with _guarded(options) as publish:
        if not publish.done:
            frame.write.format("pulljobs").mode("append").options(**options).save()
    done = BulkPublish.objects.using(settings().DATABASE).get(publish_id=publish_id)
    if not publish.done:
        telemetry.emit(telemetry.JobsPublished(target.channel, done.messages, done.jobs))
    return done, publish.done


def id_of(target: Target, paths: Sequence[str]) -> str:
    """The same for the same files: to publish them again by mistake does nothing."""
    told = [f"{target.channel}/{target.consumer or ''}"]
    for path in sorted(paths):
        try:
            stat = Path(path).stat()
        except OSError as error:
            raise ConfigurationError(
                f"{path} can't be read here ({error.strerror}): name a file, or give --publish-id."
            ) from error
        told.append(f"{Path(path).resolve()} {stat.st_size} {stat.st_mtime_ns}")
    digest = hashlib.sha256("\n".join(told).encode()).hexdigest()
    return f"files-{digest[:32]}"


def _guards() -> str:
    """Not behind a pooler, which may let others have the session that holds the publish."""
    return "false" if statements.behind_pooler(settings().DATABASE) else "true"


@contextmanager
def _guarded(options: Mapping[str, str]) -> Iterator["Opened"]:
    """Open and hold the publish while this process lives; what a failure left goes at the end."""
    from pyspark_pulljobs import publishing, requests, staging
    from pyspark_pulljobs.session import opened

    request = requests.read(options)
    try:
        with opened(request.dsn) as held:
            address = requests.address(held, request)
            yield publishing.open_publish(held, request, address)
    finally:
        with opened(request.dsn) as after:
            staging.clean(after)
