"""dramatiq-pg with dramatiq's own processes and threads. No results are stored."""

import logging
import os
import sys

import common
import dramatiq
import psycopg2
from dramatiq_pg import PostgresBroker, generate_init_sql

logging.disable(logging.INFO)

THREADS = 8

WHERE = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "dbname": "PGDATABASE"}

broker = PostgresBroker(
    url="?" + "&".join(f"{name}={os.environ[variable]}" for name, variable in WHERE.items()),
    results=False,
)
dramatiq.set_broker(broker)


@dramatiq.actor
def job(payload):
    common.handle(payload)


def migrate():
    with psycopg2.connect("") as connection, connection.cursor() as cursor:
        cursor.execute(generate_init_sql())


def publish(payloads):
    for payload in payloads:
        job.send(payload)


def work(processes):
    command = [sys.executable, "-m", "dramatiq", "dramatiq_pg_peer"]
    os.execvp(command[0], [*command, "--processes", str(processes), "--threads", str(THREADS)])


if __name__ == "__main__":
    common.run(migrate, publish, None, work)
