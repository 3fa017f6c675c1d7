"""Columns of the lake's tables, which docs/reference/lake.md describes."""

from typing import Final

import pyarrow as pa

STATISTICS: Final = (
    "id", "job_id", "created_at", "settled_at", "settled_xid", "published_at", "published_xid"
)  # fmt: skip
"""Columns whose lowest and highest values are in the Delta log, never keys or errors of jobs."""
VERSION: Final = 1
"""Version of the columns below, which tables and files record."""
DAY: Final = pa.field("day", pa.date32(), nullable=False)
"""Column by which tables are partitioned. It is in the path of a file and not in the file."""
TIME: Final = pa.timestamp("us", tz="UTC")
"""Type of times, in microseconds."""
METADATA: Final = {"pulljobs.schema": str(VERSION)}

ARCHIVE: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("job_id", pa.int64(), nullable=False),
        pa.field("message_id", pa.int64(), nullable=False),
        pa.field("consumer_id", pa.int64(), nullable=False),
        pa.field("channel", pa.string()),
        pa.field("consumer", pa.string()),
        pa.field("state", pa.string(), nullable=False),
        pa.field("reason", pa.string()),
        pa.field("created_at", TIME, nullable=False),
        pa.field("claimed_at", TIME),
        pa.field("started_at", TIME),
        pa.field("settled_at", TIME, nullable=False),
        pa.field("run_seconds", pa.float64()),
        pa.field("retry_count", pa.int32(), nullable=False),
        pa.field("deliveries", pa.int32(), nullable=False),
        pa.field("node_id", pa.string()),
        pa.field("lease_token", pa.string()),
        pa.field("error", pa.string()),
        pa.field("result", pa.string()),
        pa.field("settled_xid", pa.int64(), nullable=False),
    ],
    METADATA,
)

MESSAGES: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("channel_id", pa.int64(), nullable=False),
        pa.field("channel", pa.string()),
        pa.field("producer_id", pa.int64()),
        pa.field("published_at", TIME, nullable=False),
        pa.field("priority", pa.int32(), nullable=False),
        pa.field("key", pa.string()),
        pa.field("client_message_id", pa.string()),
        pa.field("content_type", pa.string(), nullable=False),
        pa.field("headers", pa.string(), nullable=False),
        pa.field("payload_bytes", pa.int64(), nullable=False),
        pa.field("payload", pa.binary()),
        pa.field("payload_md5", pa.string()),
        pa.field("published_xid", pa.int64(), nullable=False),
    ],
    METADATA,
)

TABLES: Final = {"archive": ARCHIVE, "messages": MESSAGES}
DICTIONARY_COLUMNS: Final = [
    "consumer_id", "channel", "consumer", "state", "reason", "retry_count", "deliveries", "node_id",
    "settled_xid", "channel_id", "producer_id", "priority", "content_type", "headers",
    "published_xid",
]  # fmt: skip
"""Columns that Parquet encodes with a dictionary. Values of other columns seldom repeat."""
NAME_COLUMNS: Final = {
    "archive": ("consumer_id", ("channel", "consumer")),
    "messages": ("channel_id", ("channel",)),
}
"""Id column of each table, and the columns of names that the export fills in by that id."""
