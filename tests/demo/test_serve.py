"""`demo --serve`: a user with the printed login redrives a dead job in the admin."""

import re
import signal
from http.cookiejar import CookieJar
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

from tests.demo.running import Project, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.processes]


class Browser:
    def __init__(self, address: str) -> None:
        self._address, self._jar = address, CookieJar()
        self._opener = build_opener(HTTPCookieProcessor(self._jar))

    def get(self, path: str = "") -> str:
        page = self._opener.open(self._address + path, timeout=120)
        return str(page.read().decode())

    def post(self, path: str, **fields: str) -> str:
        token = next(cookie.value for cookie in self._jar if cookie.name == "csrftoken")
        form = urlencode({**fields, "csrfmiddlewaretoken": token}).encode()
        return str(self._opener.open(self._address + path, form, timeout=120).read().decode())


def test_a_job_redriven_in_the_admin_dies_again(project: Project) -> None:
    """The page of the dead job shows its error, and Ctrl-C ends the site and the worker."""
    demo = project.demo("--limit=100", "--serve", "--no-lake", "--port=0")
    address, user, password = demo.says(r"(http://\S+) +user (\S+) +password (\S+)").groups()
    browser = Browser(address)
    browser.get("login/")
    assert "Log out" in browser.post("login/", username=user, password=password, next="/admin/")
    [(job,)] = project.query("SELECT id FROM pulljobs_job WHERE reason IS NOT NULL LIMIT 1")

    browser.post("pulljobs/job/", action="redrive", _selected_action=str(job))
    settlements = "SELECT count(*) FROM pulljobs_archived_job WHERE state = 'DEAD' AND job_id = %s"
    wait_until(lambda: project.number(settlements, job) == 2)

    page = browser.get(f"pulljobs/job/{job}/change/")
    assert "DEAD" in page
    assert re.search("TooLarge: [0-9,]+ bytes", page)
    demo.signal(signal.SIGINT)
    assert demo.end() == 0, demo.err
    assert project.worker_groups() == set()


def test_a_schedule_repeats_the_census_as_batches_until_the_demo_ends(project: Project) -> None:
    demo = project.demo("--limit=20", "--serve", "--no-lake", "--port=0", "--every=1s")
    demo.says("The census is repeated every 0:00:01")
    wait_until(lambda: project.number("SELECT count(*) FROM census_run WHERE jobs = 40") >= 3)
    fired = "SELECT count(*) FROM pulljobs_slot WHERE message_id IS NOT NULL"
    assert project.number(fired) >= 2
    reported = (
        "SELECT count(*) FROM pulljobs_archived_job AS archived"
        " JOIN pulljobs_batch AS batch ON batch.name = 'census' AND batch.completed_at IS NOT NULL"
        " AND batch.members = 40 AND batch.dead + (archived.result ->> 'delivered')::int = 40"
        " WHERE archived.result ->> 'jobs' = '40'"
    )
    wait_until(lambda: project.number(reported) > 0)
    demo.signal(signal.SIGINT)
    assert demo.end() == 0, demo.err
    assert project.number("SELECT count(*) FROM pulljobs_schedule") == 0
