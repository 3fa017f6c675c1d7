"""New database of a benchmark on the project's server, and facts about the machine."""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from django.db import connection

from pulljobs.conf import settings
from pulljobs.models import Channel, Consumer
from pulljobs.storage import partition_making

CHANNEL = "bench"
CONSUMER = "noop"
EMPTIED = "pulljobs_job, pulljobs_lease, pulljobs_archived_job"
SHOWN = ("fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size")
DURABLE = ("fsync", "synchronous_commit", "full_page_writes")


@contextmanager
def own_database(*, durable: bool = True, kept: bool = False) -> Iterator[None]:
    """Create and migrate a database, and drop it at the end.

    Processes that are started inside the block use this database, too. With `durable`, raise
    SystemExit if the server does not wait for its disk. With `kept`, leave the database in place:
    the next call with `kept` finds its rows.
    """
    outer = connection.settings_dict["NAME"]
    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False, keepdb=kept)
    os.environ["PULLJOBS_BENCHMARK"] = "1"
    try:
        if durable:
            refuse_unsafe()
        list(partition_making.make_ahead(settings().DATABASE, settings().PARTITIONS_AHEAD))
        # Migrations declare both where the benchmark's settings have the handler's app.
        channel, _created = Channel.objects.get_or_create(name=CHANNEL)
        Consumer.objects.get_or_create(channel=channel, name=CONSUMER)
        yield
    finally:
        del os.environ["PULLJOBS_BENCHMARK"]
        query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        connection.creation.destroy_test_db(outer, verbosity=0, keepdb=kept)


def refuse_unsafe() -> None:
    """Raise SystemExit if the server may lose a commit in a crash."""
    off = [name for name in DURABLE if query(f"SHOW {name}")[0][0] == "off"]
    if off:
        raise SystemExit(
            f"The server has {', '.join(off)} off, so rates of commits mean nothing: turn it on."
        )


def consumer() -> Consumer:
    """Return the consumer that `own_database` created."""
    return Consumer.objects.get(name=CONSUMER, channel__name=CHANNEL)


def query(text: str) -> list[tuple[object, ...]]:
    """Run a statement and return its rows, an empty list if it gives none."""
    with connection.cursor() as cursor:
        cursor.execute(text)
        return list(cursor.fetchall()) if cursor.description else []


def bare_connection() -> psycopg.Connection[tuple[object, ...]]:
    """Connect without Django: parameters are bound on the server and statements are prepared."""
    params = connection.get_connection_params()
    for django_own in ("cursor_factory", "context", "prepare_threshold"):
        params.pop(django_own, None)
    return psycopg.connect(**params, autocommit=True, prepare_threshold=0)


def store_messages(count: int) -> None:
    """Store messages in emptied tables. Create the view `queued`, with a job to insert for each."""
    query(f"TRUNCATE {EMPTIED}, pulljobs_message")
    query(
        "INSERT INTO pulljobs_message"
        " (channel_id, published_at, priority, content_type, headers, payload)"
        " SELECT id, clock_timestamp(), 0, 'application/json', '{}',"
        " convert_to(json_build_object('number', number, 'filler', repeat('x', 100))::text, 'UTF8')"
        f" FROM pulljobs_channel, generate_series(1, {int(count)}) AS number"
    )
    query(
        "CREATE OR REPLACE VIEW queued AS"
        " SELECT message.id, message.id AS message_id, consumer.id AS consumer_id,"
        " message.published_at AS available_at, message.priority"
        " FROM pulljobs_message AS message JOIN pulljobs_consumer AS consumer USING (channel_id)"
    )
    query("VACUUM ANALYZE pulljobs_message")


def machine() -> dict[str, str]:
    """Return the machine, versions and settings that the figures are valid for."""
    shown = {name: str(query(f"SHOW {name}")[0][0]) for name in SHOWN}
    return {
        "cpu": _cpu(),
        "cores": str(len(os.sched_getaffinity(0))),
        "load at start": f"{os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
        "psycopg": f"{psycopg.__version__} ({psycopg.pq.__impl__})",
        "postgresql": str(query("SHOW server_version")[0][0]),
        **shown,
    }


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
