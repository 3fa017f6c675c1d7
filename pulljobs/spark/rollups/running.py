"""A run of the rollup: the hours that new files of the lake touch, counted anew.

Hours are counted from all of their rows, never added to, so a run that is repeated writes the
same. Days and months are merged from the hours, those of earlier runs too.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from django.db import connections, transaction
from django.db.models.functions import Now

from pulljobs.conf import settings
from pulljobs.errors import LakeError
from pulljobs.models import Consumer, LakeRun, RollupRun
from pulljobs.models.rollups import Period
from pulljobs.spark import progress, tables
from pulljobs.spark.rollups import counting, hours, merging, storing
from pulljobs.spark.rollups.counting import Sources, Subscription
from pulljobs.spark.rollups.counts import Key, Rows
from pulljobs.spark.rollups.hours import Snapshot
from pulljobs.spark.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCK: Final = 0x726F6C6C  # "roll"
"""The advisory lock of whoever writes rollups."""
MOST_GROUPS: Final = "spark.sql.objectHashAggregate.sortBased.fallbackThreshold"
"""Spark sorts all rows where a task has more groups than this; 128 by default."""
FOREVER: Final = datetime.max.replace(tzinfo=UTC)
Sessions = Callable[[], AbstractContextManager["SparkSession"]]


@dataclass(slots=True)
class RolledUp:
    """What a run wrote; nothing, where the lake had nothing new."""

    settlements: int = 0
    """Of the hours that were counted anew."""
    delivered: int = 0
    dead: int = 0
    published: int = 0
    hours: int = 0
    rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(Period.values, 0))
    known_until: datetime | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class _Written:
    """What is to be written, a month at a time."""

    rows: dict[Period, Rows]


def roll_up(sessions: Sessions, *, anew: bool = False) -> RolledUp:
    """Count the hours that are new or have late rows; with `anew`, all that the lake has.

    Everything is written in one transaction, or nothing. LakeError if another run was quicker. A
    session is only opened if there is something to count.
    """
    started = time.monotonic()
    using, where = settings().DATABASE, tables.location()
    run = _Run(using, where, RollupRun.objects.using(using).first(), anew)
    if not run.is_due:
        return RolledUp(seconds=time.monotonic() - started)
    with sessions() as spark, progress.shown(spark, "rollup", run.rows):
        spark.conf.set(MOST_GROUPS, "10000")
        rolled_up = run.perform(spark)
    rolled_up.seconds = time.monotonic() - started
    return rolled_up
