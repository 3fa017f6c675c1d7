"""Privileges of the database role `lake`, which exports, counts rollups, streams and publishes."""

from typing import Final

from pulljobs.hooks import DatabaseRole

ROLE: Final = DatabaseRole(
    meaning="what `app` may, and what Spark does; a table for each atomic publish",
    tables=dict.fromkeys(
        [
            "pulljobs_lake_run",
            "pulljobs_lake_day",
            "pulljobs_rollup",
            "pulljobs_rollup_run",
            "pulljobs_hot_key",
            "pulljobs_error_fingerprint",
            "pulljobs_node_cost",
            "pulljobs_bulk_publish",
            "pulljobs_published_part",
            "pulljobs_rejected_row",
            "pulljobs_replayed_job",
            "pulljobs_stream",
            "pulljobs_stream_batch",
        ],
        "SELECT, INSERT, UPDATE, DELETE",
    ),
    creates_tables=True,
)
