"""Peers with their pinned versions, each in the best setting that its authors document."""

from dataclasses import replace
from typing import Final

from benchmarks.peers.peer import Peer, Runtime

PULLJOBS: Final = Peer(
    name="pulljobs",
    runtime=Runtime.OURS,
    adapter="pulljobs_peer.py",
    left="SELECT count(*) FROM pulljobs_job WHERE state <> 'DEAD'",
    settings="--concurrency 16 --fetch-batch 500 --flush-size 500 --max-held 4000",
    history="message and an archive row for each consumer",
    holds="lease, renewed; fenced by token",
    fan_out="yes",
    acks="batched, fenced",
    retries="database, back-off and limit",
)

PEERS: Final = (
    PULLJOBS,
    replace(PULLJOBS, name="pulljobs-defaults", settings="none: the defaults of `runpullworker`"),
    Peer(
        name="procrastinate",
        runtime=Runtime.PYTHON,
        packages=("procrastinate==3.10.0", "psycopg[binary]"),
        adapter="procrastinate_peer.py",
        left="SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
        settings="asyncio, concurrency 100, batch_defer",
        history="job row, and an event row for each change",
        holds="worker heartbeat; your own task finds stalled jobs",
        fan_out="no",
        acks="one by one",
        retries="database, strategy",
    ),
    Peer(
        name="pgqueuer",
        runtime=Runtime.PYTHON,
        packages=("pgqueuer[asyncpg]==1.6.0", "uvloop"),
        adapter="pgqueuer_peer.py",
        left="SELECT count(*) FROM pgqueuer",
        settings="asyncpg pool, uvloop, batch_size 500, durable, `pgq autovac`",
        history="log rows, folded into statistics",
        holds="heartbeat of each job",
        fan_out="no",
        acks="buffered by batch_size",
        retries="on request or by executor",
    ),
    Peer(
        name="chancy",
        runtime=Runtime.PYTHON,
        packages=("chancy==0.26.0", "psycopg[binary]"),
        adapter="chancy_peer.py",
        left="SELECT count(*) FROM chancy_jobs WHERE state IN ('pending', 'running')",
        settings="async executor, its concurrency of 100, eager polling, push_many",
        history="job row, until pruned",
        holds="worker heartbeat, claim id",
        fan_out="no",
        acks="buffered, once a second",
        retries="database, max_attempts",
    ),
    Peer(
        name="django-tasks-db",
        runtime=Runtime.PYTHON,
        packages=("django-tasks-db[compat]==0.13.0", "psycopg[binary]"),
        adapter="django_tasks_db_peer.py",
        left=(
            "SELECT count(*) FROM django_tasks_database_dbtaskresult"
            " WHERE status IN ('READY', 'RUNNING')"
        ),
        settings="db_worker --interval 0.1, connections kept",
        history="result row",
        holds="nothing: a crash leaves it RUNNING",
        fan_out="no",
        acks="one by one",
        retries="none",
    ),
    Peer(
        name="faststream-sqlbroker",
        runtime=Runtime.PYTHON,
        packages=("faststream-sqlbroker==0.1.0a11", "sqlalchemy[asyncio]", "asyncpg"),
        adapter="faststream_sqlbroker_peer.py",
        left="SELECT count(*) FROM message",
        settings="fetches of 500, 10 coroutines, flush 50 ms, poll 100 ms",
        history="archive row",
        holds="acquired_at, a timeout frees it; no fence",
        fan_out="no",
        acks="batched by interval",
        retries="database, strategy",
    ),
    Peer(
        name="faststream-outbox",
        runtime=Runtime.PYTHON,
        packages=("faststream-outbox[asyncpg]==0.19.0", "sqlalchemy[asyncio]"),
        adapter="faststream_outbox_peer.py",
        left="SELECT count(*) FROM outbox",
        settings="fetches of 500, 4 coroutines, flushes of 100, LISTEN, its autovacuum DDL",
        history="none: the row is deleted",
        holds="lease, not renewed; fenced by token",
        fan_out="no",
        acks="batched, fenced",
        retries="database, strategy",
    ),
    Peer(
        name="dramatiq-pg",
        runtime=Runtime.PYTHON,
        packages=("dramatiq-pg==0.12.0", "psycopg2-binary"),
        adapter="dramatiq_pg_peer.py",
        left="SELECT count(*) FROM dramatiq.queue WHERE state IN ('queued', 'consumed')",
        settings="--processes, 8 threads each (dramatiq's default), no results",
        history="message row, 30 days",
        holds="advisory lock of a session",
        fan_out="no",
        acks="one by one",
        retries="new message",
    ),
    Peer(
        name="django-q2",
        runtime=Runtime.PYTHON,
        packages=("django-q2==1.11.1", "psycopg[binary]"),
        adapter="django_q2_peer.py",
        left="SELECT count(*) FROM django_q_ormq",
        settings="ORM broker, workers, bulk 100, queue_limit 500, poll 0.1, save_limit -1",
        history="none in this set-up; otherwise a result row",
        holds="lock until a time, `retry`",
        fan_out="no",
        acks="one by one, by one monitor",
        retries="by time-out, max_attempts",
    ),
    Peer(
        name="graphile-worker",
        runtime=Runtime.NODE,
        packages=("graphile-worker@0.18.0", "pg"),
        adapter="graphile_worker_peer.mjs",
        left="SELECT count(*) FROM graphile_worker._private_jobs",
        settings="24 jobs at once, local queue of 500, batched completion",
        history="none: the row is deleted",
        holds="locked_by, 4 hours",
        fan_out="no",
        acks="batched",
        retries="database, back-off and limit",
    ),
    Peer(
        name="pg-boss",
        runtime=Runtime.NODE,
        packages=("pg-boss@12.38.0",),
        adapter="pg_boss_peer.mjs",
        left="SELECT count(*) FROM pgboss.job WHERE name = 'jobs' AND state < 'completed'",
        settings="two loops of batches of 500, burst while full, LISTEN, insert",
        history="job row, until deleted",
        holds="expiry, heartbeat if asked for",
        fan_out="publish and subscribe",
        acks="batched",
        retries="database, back-off and limit",
    ),
)


def choose_peers(names: list[str] | None) -> list[Peer]:
    """Return the named peers, or all, in the order of this file. Exit for an unknown name."""
    known = {peer.name: peer for peer in PEERS}
    unknown = set(names or ()) - known.keys()
    if unknown:
        raise SystemExit(f"No peer {', '.join(unknown)}: choose from {', '.join(known)}.")
    return [peer for peer in PEERS if not names or peer.name in names]
