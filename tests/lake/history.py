"""Settlements and messages at times that a test chooses, and their lake."""

import uuid
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pulljobs import ids
from pulljobs.lake.rollups.running import RolledUp, roll_up
from pulljobs.lake.spark import exporting
from pulljobs.lake.spark.exporting import Exported, ExportOptions
from pulljobs.models import ArchivedJob, Consumer, Message
from tests.sessions import wait_for_other_transactions

NODES = (uuid.UUID(int=1), uuid.UUID(int=2))
SECOND = timedelta(seconds=1)
AHEAD = SECOND / 2
"""Time that a claimed job waited in its worker for a thread."""
NOON = datetime(2026, 3, 31, 12, tzinfo=UTC)
"""Noon of the last day of a month, for rows on both sides of its end."""


@dataclass
class History:
    """Maker of messages and settlements at given times, with ids that contain the times."""

    numbers: "count[int]" = field(default_factory=count)

    def message(self, consumer: Consumer, at: datetime, key: str | None = None) -> Message:
        return Message.objects.create(
            id=self.id_at(at),
            channel=consumer.channel,
            published_at=at,
            key=key,
            content_type="text/plain",
            payload=b"",
        )

    def settle(
        self, consumer: Consumer, at: datetime, *, wait: float = 1.0, run: float = 2.0, **given: Any
    ) -> ArchivedJob:
        """Write the settlement of a job that waited and ran for these seconds before `at`.

        Other fields can be given: `reason` for a DEAD job, None for NULL, as if it did not run.
        """
        started_at = at - run * SECOND
        claimed_at = started_at - AHEAD
        created_at = claimed_at - wait * SECOND
        fields = {
            "job_id": self.id_at(created_at),
            "created_at": created_at,
            "claimed_at": claimed_at,
            "started_at": started_at,
            "run_seconds": run,
            "retry_count": 0,
            "deliveries": 1,
            "node_id": NODES[0],
            "state": "DEAD" if "reason" in given else "DELIVERED",
        }
        return ArchivedJob.objects.create(
            id=self.id_at(at), consumer=consumer, message_id=1, settled_at=at, **(fields | given)
        )

    def id_at(self, time: datetime) -> int:
        return ids.first_of(time) + next(self.numbers)


@dataclass
class Lake:
    spark: SparkSession | None = None
    """Session by which Spark counts, or None if the test counts in its own process."""

    def export(self) -> Exported:
        wait_for_other_transactions()
        return exporting.export(ExportOptions(), self._session)

    def roll_up(self, **options: Any) -> RolledUp:
        return roll_up(self._session, **options)

    def _session(self, **_hints: int) -> AbstractContextManager[SparkSession]:
        assert self.spark, "Spark was asked for"
        return nullcontext(self.spark)


@pytest.fixture
def history() -> History:
    return History()
