"""Tables of the lake: export runs, compared days, rollups, bulk publishes and streams.

`ledger`, `verified_days`, `rollups` and `pyspark_pulljobs` write them.
"""

from pulljobs.lake.models.bulk import BulkPublish, PublishedPart, RejectedRow, ReplayedJob
from pulljobs.lake.models.ledger import LakeDay, LakeRun
from pulljobs.lake.models.rollups import ErrorFingerprint, HotKey, NodeCost, Rollup, RollupRun
from pulljobs.lake.models.streams import Stream, StreamBatch

__all__ = [
    "BulkPublish",
    "ErrorFingerprint",
    "HotKey",
    "LakeDay",
    "LakeRun",
    "NodeCost",
    "PublishedPart",
    "RejectedRow",
    "ReplayedJob",
    "Rollup",
    "RollupRun",
    "Stream",
    "StreamBatch",
]
