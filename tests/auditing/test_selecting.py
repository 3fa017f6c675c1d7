"""A selection read in windows has each matching job once and in order, for all sizes of windows."""

import json
from itertools import product
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone

from pulljobs.ids import LARGEST_ID
from pulljobs.models import Consumer, Job, Lease
from pulljobs.states import LIVE, State
from pulljobs.storage.selecting import Selection, window
from pulljobs.storage.windows import downwards, upwards
from tests.factories import USING, ConsumerFactory, JobFactory, published

pytestmark = pytest.mark.django_db
MEANT: list[dict[str, Any]] = [
    {},
    {"reason": "rejected"},
    {"reason": "killed"},
    {"key": "red"},
    {"key": "red", "states": ("DEAD",)},
    {"key": "red", "states": ("QUEUED",)},
    {"key": "red", "reason": "killed"},
    *({"states": (state.value,)} for state in sorted(LIVE)),
    {"states": ("INFLIGHT", "QUEUED")},
    {"consumer": True},
    {"consumer": True, "states": ("DEAD",)},
    {"consumer": True, "states": ("INFLIGHT",)},
    {"consumer": True, "key": "red"},
    {"first": 5},
    {"last": 5},
    {"first": 3, "last": 8, "states": ("DEAD",)},
]


@pytest.fixture
def jobs() -> list[dict[str, Any]]:
    """Create jobs of two consumers in every state, some with a key. Return their rows."""
    first, last = ConsumerFactory.create(), ConsumerFactory.create()
    for state in sorted(LIVE) * 2:
        JobFactory.create(consumer=first, state=state)
    Consumer.objects.filter(pk=first.pk).update(exclusive_keys=True)
    _queued, held = published(first, 2, key="red")
    token, now = uuid4(), timezone.now()
    Job.objects.filter(id=held).update(state="INFLIGHT", lease_token=token)
    times = dict.fromkeys(("claimed_at", "leased_until", "hard_end"), now)
    Lease.objects.create(lease_token=token, consumer=first, via="pull", job_ids=[held], **times)
    [dead] = published(first, key="red")
    Job.objects.filter(id=dead).update(state="DEAD", reason="killed", available_at=None)
    # All of its ids are above those of the first: their indexes end at different places.
    for state in sorted(LIVE) * 2:
        JobFactory.create(consumer=last, state=state)
    rows = Job.objects.order_by("id").values("id", "consumer_id", "state", "reason", "key")
    return [dict(row) for row in rows]


def test_windows_find_each_job_that_is_meant_once(jobs: list[dict[str, Any]]) -> None:
    """Windows of every size, upward and downward, give each matching job once and in order."""
    for meant, wanted, scanned, upward in product(MEANT, [1, 3], [2, 7, 1000], [True, False]):
        selection = selected(meant, jobs)
        ids = [job["id"] for job in jobs if selection.fits(job)]
        assert find_ids(selection, wanted, scanned, upward) == (ids if upward else ids[::-1]), meant
        assert ids


def selected(meant: dict[str, Any], jobs: list[dict[str, Any]]) -> Selection:
    meant = dict(meant)
    if meant.pop("consumer", False):
        meant["consumer_ids"] = (jobs[0]["consumer_id"],)
    for bound in {"first", "last"} & meant.keys():
        meant[bound] = jobs[meant[bound]]["id"]
    return Selection(**meant)


def find_ids(selection: Selection, wanted: int, scanned: int, upward: bool) -> list[int]:
    """Return the ids of the jobs of a selection, read window by window."""
    ids: list[int] = []
    first = 0 if upward else LARGEST_ID
    beyond: int | None = first
    while True:
        span = (upwards if upward else downwards)(beyond or first, wanted, scanned)
        seen = window(USING, selection, span)
        assert len(seen.ids) <= wanted
        ids += seen.ids
        beyond = seen.beyond
        if beyond is None:
            return ids


def test_a_selection_survives_json() -> None:
    selection = Selection(states=(State.DEAD.value,), consumer_ids=(1, 2), key="k", first=3)
    assert Selection.parse(json.loads(json.dumps(selection._asdict()))) == selection
