"""Checksum of a row of the lake, equal to that of `sql/checksum_*.sql` for PostgreSQL's row."""

from typing import Final

ARCHIVE: Final = (
    "id",
    "job_id",
    "message_id",
    "consumer_id",
    "state",
    "coalesce(reason, '')",
    "unix_micros(created_at)",
    "coalesce(cast(unix_micros(claimed_at) AS string), '')",
    "coalesce(cast(unix_micros(started_at) AS string), '')",
    "unix_micros(settled_at)",
    "coalesce(cast(floor(run_seconds * 1e9D) AS string), '')",
    "retry_count",
    "deliveries",
    "coalesce(node_id, '')",
    "coalesce(lease_token, '')",
    "coalesce(md5(error), '')",
    "coalesce(md5(result), '')",
)
MESSAGES: Final = (
    "id",
    "channel_id",
    "coalesce(cast(producer_id AS string), '')",
    "unix_micros(published_at)",
    "priority",
    "coalesce(md5(key), '')",
    "coalesce(md5(client_message_id), '')",
    "md5(content_type)",
    "md5(headers)",
    "payload_bytes",
)


def expression(table: str) -> str:
    """Return the checksum as an expression of Spark's SQL, a decimal."""
    columns = {"archive": ARCHIVE, "messages": MESSAGES}[table]
    parts = ", ".join(f"cast({column} AS string)" for column in columns)
    return f"cast(conv(substr(md5(concat_ws('|', {parts})), 1, 15), 16, 10) AS decimal(38, 0))"


PAYLOAD_IS_WHOLE: Final = (
    "payload IS NULL OR (octet_length(payload) = payload_bytes AND md5(payload) = payload_md5)"
)
