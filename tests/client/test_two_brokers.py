"""Two live servers: the busy one gives most of the messages, and both together keep the limit."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import psycopg
import pytest
from django.db import connection

from example_project.state import BASE_DIR
from pulljobs.client import Consumer, Producer
from tests import second
from tests.api.leases.processes import Site, site
from tests.client.conftest import SETTINGS, subscribe
from tests.client.names import SHOP, SUBSCRIPTION
from tests.client.test_flow import running
from tests.sessions import PATIENCE_SECONDS, query

LOOK_SECONDS = 0.01
"""Seconds between two queries for held messages: without a pause they would slow the servers."""
JOBS = int(os.environ.get("PULLJOBS_TEST_CLIENT_JOBS", "150"))

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.django_db(transaction=True)]

Look = psycopg.Connection[Any]


class Held(NamedTuple):
    here: int
    there: int
    together: int


PREPARE = """
import django
django.setup()
from django.core.management import call_command
from tests.client.conftest import subscribe
call_command("migrate", verbosity=0)
subscribe()
"""


@pytest.fixture
def other(served: Site) -> Iterator[Site]:
    """Run a second server with a new database, which is dropped at the end."""
    name = f"{connection.settings_dict['NAME']}_other"
    query(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
    query(f'CREATE DATABASE "{name}"')
    environment = {"SERVED_DATABASE": name, "DJANGO_SETTINGS_MODULE": SETTINGS} | second.NOT
    try:
        subprocess.run(
            [sys.executable, "-c", PREPARE],
            cwd=BASE_DIR,
            env={**os.environ, **environment, "PYTHONPATH": str(BASE_DIR)},
            check=True,
        )
        with site(environment) as running_other:
            yield running_other
    finally:
        query(f'DROP DATABASE "{name}" WITH (FORCE)')


def publish(served: Site, count: int) -> None:
    with Producer(served.base, "orders", "shop", **SHOP) as producer:
        producer.publish_many([b"x"] * count)


def test_the_busy_broker_gets_most_of_the_limit_of_held_messages(served: Site, other: Site) -> None:
    """The messages held at both servers together never exceed the limit, even if it is 1."""
    subscribe()
    with ExitStack() as stack:
        looks = [stack.enter_context(looking(name)) for name in names()]
        for limit, jobs in ((10, JOBS), (1, JOBS // 5)):
            first, second = moved(limit, jobs, (served, other), looks)
            print(f"limit {limit}: held {first}, then {second}: here, there, together")
            assert max(first.together, second.together) <= limit
            assert first.here >= limit - 1
            assert second.there >= limit - 1


def moved(limit: int, jobs: int, sites: tuple[Site, Site], looks: list[Look]) -> tuple[Held, Held]:
    """Publish jobs to one site and then to the other, with a consumer of both at work.

    Return for each of the two times the highest numbers of messages that the consumer held at once.
    The sites' databases are read through `looks`.
    """
    consumer = Consumer(
        lambda message: time.sleep(0.005),
        [site.base for site in sites],
        subscription=SUBSCRIPTION,
        max_in_flight=limit,
        concurrency=limit,
    )
    with running(consumer):
        held = []
        for busy, site in enumerate(sites):
            most = Held(0, 0, 0)
            deadline = time.monotonic() + 12 * PATIENCE_SECONDS + JOBS / 5
            while most[busy] < limit - 1 or not most[busy]:
                assert time.monotonic() < deadline, most
                publish(site, jobs)
                most = Held(*map(max, most, sampled(looks, busy)))
            held.append(most)
    return held[0], held[1]


def names() -> list[str]:
    ours = str(connection.settings_dict["NAME"])
    return [ours, f"{ours}_other"]


def looking(name: str) -> Look:
    params = second.parameters(connection.get_connection_params())
    keys = ("host", "port", "user", "password")
    given = {key: params[key] for key in keys if params.get(key)}
    return psycopg.connect(**given, dbname=name, autocommit=True)


def sampled(looks: list[Look], busy: int) -> Held:
    """Return the highest numbers of held messages seen until the busy broker has no job left."""
    most = Held(0, 0, 0)
    deadline = time.monotonic() + 12 * PATIENCE_SECONDS + JOBS / 5
    while _count(looks[busy]):
        before, there, after = _held(looks[0]), _held(looks[1]), _held(looks[0])
        # What moved between the looks is not counted twice.
        seen = Held(before, there, min(before, after) + there)
        most = Held(*map(max, most, seen))
        assert time.monotonic() < deadline
        time.sleep(LOOK_SECONDS)
    return most


def _held(look: Look) -> int:
    return _count(look, "WHERE state = 'INFLIGHT'")


def _count(look: Look, where: str = "") -> int:
    row = look.execute(f"SELECT count(*) FROM pulljobs_job {where}").fetchone()
    assert row
    return int(row[0])
