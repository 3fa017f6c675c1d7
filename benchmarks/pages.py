"""Times of pages of the admin, over an archive and a backlog of millions of rows."""

import argparse
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any, Final
from unittest.mock import patch

import psycopg
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.urls import NoReverseMatch, reverse

from benchmarks.database import consumer, own_database, query
from benchmarks.report import print_report
from pulljobs import auditing, operating
from pulljobs.admin.operations import BY_SLUG
from pulljobs.ids import EPOCH_MILLISECONDS
from pulljobs.models import ArchivedJob, AuditEntry, Channel, Consumer, Job, Node, Producer
from pulljobs.pulling import Puller
from pulljobs.states import Event
from pulljobs.storage import partition_making, partitions
from pulljobs.storage.selecting import Selection

DAYS: Final = 10
LIMIT_MS: Final = 300.0
CONSUMERS: Final = 10
STEP: Final = 500_000
RARE: Final = "one of a kind"
MADE: Final = (
    f"(((extract(epoch FROM at) * 1000)::bigint - {EPOCH_MILLISECONDS}) << 22) | (n %% 4194304)"
)
"""Expression of a unique id of the moment `at`."""
ARCHIVE: Final = f"""
INSERT INTO pulljobs_archived_job (
    id, job_id, message_id, consumer_id, created_at, claimed_at, started_at, settled_at,
    run_seconds, retry_count, deliveries, state, reason, error, lease_token
)
SELECT {MADE}, {MADE}, {MADE}, (%(consumers)s::bigint[])[1 + n %% %(many)s],
    at - interval '2 s', at - interval '1 s', at - interval '0.9 s', at,
    exp(n %% 97 / 20.0 - 4), 0, 1,
    CASE WHEN n %% 100 = 0 THEN 'DEAD' ELSE 'DELIVERED' END,
    CASE WHEN n %% 100 = 0 THEN 'rejected' END,
    CASE WHEN n %% 100 = 0 THEN 'bad' END,
    '00000000-0000-0000-0000-000000000001'::uuid
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n
CROSS JOIN LATERAL (
    SELECT %(now)s - %(age)s::interval * (1 - n::float8 / %(count)s) AS at
) AS settled
"""
MESSAGES: Final = f"""
INSERT INTO pulljobs_message (
    id, channel_id, producer_id, published_at, priority, content_type, headers, payload, key
)
SELECT {MADE}, %(channel)s, %(producer)s, at, 0, 'application/json', '{{}}', '{{"n": 1}}',
    'key ' || n %% 1000
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n
CROSS JOIN LATERAL (
    SELECT %(now)s - interval '1 hour' * (1 - n::float8 / %(count)s) AS at
) AS published
"""
SETTLED_MESSAGES: Final = """
INSERT INTO pulljobs_message (
    id, channel_id, producer_id, published_at, priority, content_type, headers, payload
)
SELECT message_id, %(channel)s, %(producer)s, settled_at, 0, 'application/json', '{}',
    convert_to(
        '{"task": "shop.tasks.invoice", "args": [' || message_id || '], "kwargs": {"note": "'
        || repeat(md5(message_id::text), 30) || '"}}', 'UTF8')
FROM pulljobs_archived_job
ORDER BY id DESC
LIMIT %(most)s
ON CONFLICT DO NOTHING
"""
"""Messages of the newest settlements, of a kilobyte each, which summaries and searches read."""
WITH_MESSAGES: Final = 100_000
QUEUED: Final = f"""
INSERT INTO pulljobs_job (
    id, consumer_id, message_id, available_at, priority, state, reason, error,
    retry_count, deliveries, key
)
SELECT {MADE}, (%(consumers)s::bigint[])[1 + n %% %(many)s], {MADE},
    CASE n %% 10 WHEN 3 THEN NULL WHEN 4 THEN at + interval '1 day' ELSE at END,
    n %% 5,
    CASE n %% 10 WHEN 3 THEN 'DEAD' ELSE 'QUEUED' END,
    CASE WHEN n = 3 THEN 'killed' WHEN n %% 10 = 3 THEN 'rejected' END,
    CASE n %% 10 WHEN 3 THEN 'bad' END,
    0, 0,
    CASE WHEN n = 7 THEN '{RARE}' WHEN n %% 2 = 0 THEN 'key ' || n %% 1000 END
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n
CROSS JOIN LATERAL (
    SELECT %(now)s - interval '1 hour' * (1 - n::float8 / %(count)s) AS at
) AS published
"""
Page = tuple[str, str]
"""Name and URL."""


def run(options: argparse.Namespace) -> None:
    """Time the pages. Exit with 1 if the server takes more than 300 ms for a page."""
    with own_database(durable=False, kept=options.keep):
        if not ArchivedJob.objects.exists():
            _fill(options.archived, options.queued)
        client = _operator()
        pages = [page for page in _pages() if options.only in page[0]]
        table = [_measured(client, page) for page in pages]
    table.sort(key=lambda row: -float(row["all ms"]))
    slow = [row["page"] for row in table if row["all ms"] > LIMIT_MS]
    print_report({"Pages": table}, {"pages": len(table), "over_300_ms": slow}, as_json=options.json)
    if slow:
        sys.exit(1)


def _fill(archived: int, queued: int) -> None:
    """Fill an archive of ten days and ten consumers, and live jobs.

    A tenth of the live jobs is dead and another tenth is due later.
    """
    query("SET synchronous_commit = off")
    first = consumer()
    producer = Producer.objects.create(name="bench")
    others = [Consumer(channel=first.channel, name=f"noop-{n}") for n in range(1, CONSUMERS)]
    for other in others:
        other.save()
    _partition()
    ids = [first.pk, *(other.pk for other in others)]
    common = {
        "consumers": ids,
        "many": len(ids),
        "channel": first.channel_id,
        "producer": producer.pk,
        "now": _now(),
    }
    _insert(ARCHIVE, archived, common | {"age": timedelta(days=DAYS)})
    _insert(MESSAGES, queued, common)
    _insert(QUEUED, queued, common)
    with connection.cursor() as cursor:
        cursor.execute(SETTLED_MESSAGES, common | {"most": WITH_MESSAGES})
    query("VACUUM ANALYZE pulljobs_job")
    query("VACUUM ANALYZE pulljobs_archived_job")
    query("ANALYZE pulljobs_message")
    for _count in range(2):  # The first counts the whole archive.
        operating.maintain()
    Consumer.objects.filter(pk=ids[1]).update(exclusive_keys=True)
    Node.objects.create(name="host:1", started_at=_now(), heartbeat_at=_now())
    _claim(ids[0])
    auditing.begin(
        Event.REDRIVE, Selection(states=("DEAD",)), by="bench", subject="all that is dead"
    )
    auditing.proceed(2.0)


def _insert(text: str, count: int, common: dict[str, Any]) -> None:
    for first in range(1, count + 1, STEP):
        params = common | {"first": first, "last": min(count, first + STEP - 1), "count": count}
        with connection.cursor() as cursor:
            cursor.execute(text, params)
        print(f"\r{params['last']:,} of {count:,}", end="", file=sys.stderr)
    print(file=sys.stderr)


def _partition() -> None:
    """Create the partitions of the past days."""
    today = _now().date()
    for day in range(1, DAYS + 1):
        for table in partitions.PARTITIONED:
            made = partitions.Partition(table, today - timedelta(days=day))
            partition_making._make("default", made, written=False)


def _claim(consumer_id: int) -> None:
    claiming = Consumer.objects.get(pk=consumer_id)
    for _turn in range(20):
        Puller("default", claiming).claim(200, lease_duration=timedelta(hours=1))


def _now() -> Any:
    [(now,)] = query("SELECT now()")
    return now


def _operator() -> Client:
    client = Client()
    user = User.objects.filter(username="olga").first() or User.objects.create_superuser("olga")
    client.force_login(user)
    return client


def _pages() -> Iterator[Page]:
    """Yield pages of the core's admin: lists, filtered jobs, rows, actions and the dashboard.

    Of each filter of jobs, live and archived, the first page and a later page are yielded.
    """
    noop = consumer()
    channel = noop.channel
    for model in ("job", "archivedjob"):
        yield from _lists(model, noop, channel)
    models = ("channel", "producer", "consumer", "node", "httpclient", "scheduledmessage")
    for model in (*models, "auditentry"):
        yield model, reverse(f"admin:pulljobs_{model}_changelist")
    yield from _rows(noop, channel)
    for action in BY_SLUG:
        for asked in ("", "state=DEAD", f"consumer={noop.pk}", "reason=killed", f"key={RARE}"):
            url = reverse("admin:pulljobs_job_all", args=[action])
            yield f"{action} all, {asked}", f"{url}?{asked}"
    yield "index", reverse("admin:index")
    yield "app", reverse("admin:app_list", args=["pulljobs"])
    yield from _dashboard()


def _lists(model: str, noop: Consumer, channel: Channel) -> Iterator[Page]:
    url = reverse(f"admin:pulljobs_{model}_changelist")
    middle = Job.objects.order_by("id").values_list("id", flat=True)[1000]
    settled = ArchivedJob.objects.order_by("id").values_list("id", flat=True)[1000]
    later = f"id__lt={middle if model == 'job' else settled + (1 << 50)}"
    states = ("QUEUED", "INFLIGHT", "DEAD", "DELIVERED")
    asked = [
        "",
        *(f"state={state}" for state in states),
        "reason=rejected",
        "reason=killed",
        "reason=purged",
        f"consumer={noop.pk}",
        f"channel={channel.pk}",
        f"key={RARE}",
        "key=key 2",
        "key=none",
        "age=1h",
        "age=over-1d",
        f"q={middle}",
        "q=no such thing",
        "q=key 77",
        "q=bad",
        "q=no such thing&state=DEAD",
        "q=no such thing&state=DELIVERED",
        f"q=no such thing&consumer={noop.pk}",
        f"consumer={noop.pk}&state=DEAD&reason=killed",
        f"consumer={noop.pk}&state=INFLIGHT",
    ]
    for query_string in asked:
        yield f"{model} {query_string}", f"{url}?{query_string}"
        if not query_string.startswith(f"q={middle}"):
            yield (
                f"{model} {query_string}, later",
                f"{url}?{query_string}&{later}".replace("?&", "?"),
            )


def _rows(noop: Consumer, channel: Channel) -> Iterator[Page]:
    jobs = Job.objects.order_by("id")
    rows_by_model: dict[str, Any] = {
        "channel": channel,
        "consumer": noop,
        "producer": Producer.objects.get(name="bench"),
        "node": Node.objects.first(),
        "archivedjob": ArchivedJob.objects.order_by("-id").first(),
        "auditentry": AuditEntry.objects.first(),
    }
    for model, row in rows_by_model.items():
        yield f"a {model}", reverse(f"admin:pulljobs_{model}_change", args=[row.pk])
    for state in ("QUEUED", "INFLIGHT", "DEAD"):
        for position, rows in (("first", jobs), ("last", jobs.reverse())):
            job = rows.filter(state=state).first()
            if job:
                url = reverse("admin:pulljobs_job_change", args=[job.pk])
                yield f"the {position} {state} job", url
    exclusive = jobs.filter(consumer__exclusive_keys=True, state="QUEUED", key__isnull=False).last()
    if exclusive:
        yield "a job with a key", reverse("admin:pulljobs_job_change", args=[exclusive.pk])


def _dashboard() -> Iterator[Page]:
    try:
        url = reverse("admin:pulljobs_dashboard_changelist")
    except NoReverseMatch:
        return
    for asked in ("", "?range=hour", "?range=day", "?range=week", "?range=month"):
        yield f"dashboard {asked}", url + asked


def _measured(client: Client, page: Page) -> dict[str, Any]:
    """Visit a page once, then three times more. Return the row of the quickest of the three."""
    name, url = page
    client.get(url)
    return min((_visit(client, name, url) for _turn in range(3)), key=lambda row: row["all ms"])


def _visit(client: Client, name: str, url: str) -> dict[str, Any]:
    """Time a page and all its statements, including those that do not go through Django."""
    seconds: list[float] = []
    plain = psycopg.RawCursor.execute

    def timed(execute: Any, *args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        try:
            return execute(*args, **kwargs)
        finally:
            seconds.append(time.perf_counter() - started)

    def ours(cursor: Any, *args: Any, **kwargs: Any) -> Any:
        return timed(partial(plain, cursor), *args, **kwargs)

    with (
        patch.object(psycopg.RawCursor, "execute", ours),
        connection.execute_wrapper(timed),
    ):
        started = time.perf_counter()
        answer = client.get(url)
        took = time.perf_counter() - started
    assert answer.status_code == 200, (name, answer.status_code)
    return {
        "page": name,
        "statements": len(seconds),
        "SQL ms": round(sum(seconds) * 1000, 1),
        "all ms": round(took * 1000, 1),
    }
