"""Each process of a site exports the sums of all processes."""

from pathlib import Path

import httpx
import pytest
from django.db import connections

from pulljobs.models import Channel
from tests.api.broadcasting import Announcer
from tests.api.leases.processes import STARTING_SECONDS, Site, site
from tests.factories import USING
from tests.metrics.scraping import by, parsed


@pytest.mark.processes
def test_two_processes_of_a_site_tell_one_sum(transactional_db: None, tmp_path: Path) -> None:
    """Each process exports the counts of all processes, even of a process that has ended."""
    channel = Channel(name="orders")
    token = channel.set_token()
    channel.save()
    announcer = Announcer(channel, token)
    environment = {
        "DJANGO_SETTINGS_MODULE": "tests.metrics.settings",
        "SERVED_DATABASE": str(connections[USING].settings_dict["NAME"]),
        "PROMETHEUS_MULTIPROC_DIR": str(tmp_path),
    }
    with site(environment) as first:
        with site(environment) as second:
            for process in (first, first, first, second, second):
                _publish(process, announcer)
            assert _published(first) == _published(second) == {("orders",): 5}
        assert _published(first) == {("orders",): 5}


def _publish(to: Site, announcer: Announcer) -> None:
    url = f"{to.base}{announcer.url}"
    answer = httpx.post(url, content=b"1", headers=announcer.headers, timeout=STARTING_SECONDS)
    assert answer.status_code == 201


def _published(asked: Site) -> dict[tuple[str, ...], float]:
    answer = httpx.get(f"{asked.base}/metrics", timeout=STARTING_SECONDS)
    assert answer.status_code == 200
    return by(parsed(answer.text), "pulljobs_messages_published_total", "channel")
