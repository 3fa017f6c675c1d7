"""Bodies of a job POST."""

import json

import pytest

from pulljobs.models import Job
from pulljobs.states import State
from tests.api.caller import Caller, publish
from tests.sessions import contents

TAKE = b'{"NextState": "INFLIGHT"}'


@pytest.mark.parametrize(
    "content_type",
    ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "nonsense"],
)
def test_the_content_type_does_not_matter(content_type: str, caller: Caller) -> None:
    assert caller.move(publish(), body=TAKE, content_type=content_type).status_code == 202


@pytest.mark.parametrize(
    "body",
    [
        b'{"nextstate": "INFLIGHT"}',
        b'{"NEXTSTATE": "INFLIGHT", "Other": [1]}',
        b'{"NextState": "INFLIGHT", "IncrementalTimeout": null}',
        b'{"NextState": "INFLIGHT", "incrementaltimeout": 31536000}',
    ],
)
def test_keys_match_in_any_case_and_unknown_ones_are_ignored(body: bytes, caller: Caller) -> None:
    job_id = publish()
    assert caller.move(job_id, body=body).status_code == 202
    assert Job.objects.get(id=job_id).state == State.INFLIGHT


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"INFLIGHT"',
        b"{}",
        b"\xff\xfe",
        TAKE.decode().encode("utf-16"),
        b"[" * 10_000,
        b'{"NextState": "INFLIGHT", "Other": NaN}',
        b'{"NextState": "INFLIGHT", "Other": ' + b"1" * 5_000 + b"}",
        b'{"NextState": "inflight"}',
        b'{"NextState": "JobInFlight"}',
        b'{"NextState": 1002}',
        b'{"NextState": ["INFLIGHT"]}',
        b'{"NextState": null}',
        *(
            json.dumps({"NextState": "INFLIGHT", "IncrementalTimeout": timeout}).encode()
            for timeout in (-1, 1.5, 10.0, "10", True, [10], 10**9, 10**30)
        ),
    ],
)
def test_what_can_t_be_read_is_400_and_changes_nothing(body: bytes, caller: Caller) -> None:
    job_id = publish()
    before = contents()
    answer = caller.move(job_id, body=body)
    assert (answer.status_code, contents()) == (400, before)
    assert answer["Content-Type"].startswith("text/plain")


@pytest.mark.parametrize("size", [20_000, 3_000_000])
def test_a_body_above_the_limit_is_413(size: int, caller: Caller) -> None:
    """A body above the limit gets 413, whether or not it is also above Django's own limit."""
    job_id = publish()
    before = contents()
    answer = caller.move(job_id, body=TAKE + b" " * size)
    assert (answer.status_code, contents()) == (413, before)
