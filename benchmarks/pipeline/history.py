"""Archive of two days with a given number of settlements, and a message for every ten."""

from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

from benchmarks.database import CONSUMER, EMPTIED, query
from pulljobs.models import Channel, Consumer

CONSUMERS: Final = 8
FANNED_OUT: Final = 10
TRANSACTIONS: Final = 48
"""Transactions that write the settlements. After only one, the planner would scan the archive."""
SINCE: Final = "date_trunc('day', now(), 'UTC') - interval '2 days'"

MESSAGES: Final = """
INSERT INTO pulljobs_message (
    id, channel_id, published_at, priority, key, content_type, headers, payload
)
SELECT
    ((extract(epoch FROM at) * 1000)::bigint - 1577836800000 << 22) | (number & 4194303),
    (SELECT min(id) FROM pulljobs_channel),
    at,
    0,
    'key ' || (number::bigint * 7919 % 1000),
    'application/json',
    '{{}}',
    convert_to(json_build_object('number', number, 'filler', repeat('x', 100))::text, 'UTF8')
FROM
    generate_series(1, {messages}) AS number,
    LATERAL (
        SELECT {since} + interval '2 days' * (number::float8 / {messages} * 0.999) AS at
    ) AS time
"""
SETTLEMENTS: Final = """
INSERT INTO pulljobs_archived_job (
    id, job_id, message_id, consumer_id, created_at, claimed_at, started_at, settled_at,
    run_seconds, retry_count, deliveries, node_id, lease_token, state, reason, error, result
)
SELECT
    ((extract(epoch FROM settled_at) * 1000)::bigint - 1577836800000 << 22) | (number & 4194303),
    ((extract(epoch FROM created_at) * 1000)::bigint - 1577836800000 << 22) | (number & 4194303),
    number / 10,
    (SELECT min(id) FROM pulljobs_consumer) + number % {consumers},
    created_at,
    claimed_at,
    started_at,
    settled_at,
    extract(epoch FROM settled_at - started_at)::float8,
    CASE WHEN number % 20 = 0 THEN 1 ELSE 0 END,
    CASE WHEN number % 20 = 0 THEN 2 ELSE 1 END,
    ('00000000-0000-0000-0000-00000000000' || number % 4)::uuid,
    gen_random_uuid(),
    CASE WHEN number % 50 = 0 THEN 'DEAD' ELSE 'DELIVERED' END,
    CASE WHEN number % 50 = 0 THEN 'rejected' END,
    CASE WHEN number % 50 = 0 THEN 'ValueError: no ' || number || ' in ''orders''' END,
    CASE WHEN number % 50 <> 0 THEN jsonb_build_object('lines', number % 1000) END
FROM
    generate_series({first}, {last}) AS number,
    LATERAL (
        SELECT {since} + interval '2 days' * (number::float8 / {rows} * 0.999) AS settled_at
    ) AS settled,
    LATERAL (SELECT settled_at - interval '3 seconds' * random() AS started_at) AS started,
    LATERAL (SELECT started_at - interval '0.5 seconds' * random() AS claimed_at) AS claimed,
    LATERAL (SELECT claimed_at - interval '5 seconds' * random() AS created_at) AS created
"""


def clear() -> None:
    """Delete all jobs and messages, and all consumers but one."""
    query(f"TRUNCATE {EMPTIED}, pulljobs_message")
    Consumer.objects.exclude(name=CONSUMER).delete()


def fill_consumers() -> None:
    """Create the consumers, with a creation time before every settlement."""
    channel = Channel.objects.get()
    for number in range(1, CONSUMERS):
        Consumer.objects.get_or_create(channel=channel, name=f"noop-{number}")
    Consumer.objects.update(created_at=datetime(1970, 1, 1, tzinfo=UTC))


def settle(first: int, last: int, rows: int, since: str = SINCE) -> None:
    """Insert the settlements numbered `first` to `last`, for an archive of `rows` over two days.

    The days begin at the SQL expression `since`.
    """
    query(SETTLEMENTS.format(first=first, last=last, rows=rows, since=since, consumers=CONSUMERS))


def fill(rows: int) -> int:
    """Fill the tables. Return the number of rows to export: settlements and messages."""
    fill_consumers()
    messages = max(1, rows // FANNED_OUT)
    query(MESSAGES.format(messages=messages, since=SINCE))
    edges = [rows * number // TRANSACTIONS for number in range(TRANSACTIONS + 1)]
    for before, last in pairwise(edges):
        settle(before + 1, last, rows)
    query("VACUUM ANALYZE pulljobs_archived_job, pulljobs_message")
    query("CHECKPOINT")
    return rows + messages
