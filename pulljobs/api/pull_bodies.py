"""The JSON of part B: what pulls, acks and renewals ask and are answered."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from rest_framework.exceptions import APIException

from pulljobs import ids
from pulljobs.api import problems
from pulljobs.api.leases.long_poll.pending import Answer, Asked
from pulljobs.api.serializers import LONGEST_TIMEOUT, json_object, payload_fields
from pulljobs.api.times import rfc_3339
from pulljobs.conf import settings
from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held, Settlement
from pulljobs.outcome_texts import clean
from pulljobs.storage.rows import HeldJob, StoredMessage, Taken

Fields = Mapping[str, Any]
"""A JSON object with its keys in lower case."""

LONGEST_DELAY: Final = 3600.0
LONGEST_REQUEST_ID: Final = 255
LARGEST: Final = 2**31 - 1
NO_LEASE: Final = UUID(int=0)
"""What no lease has as its token: those are random."""
NO_REASON: Final = "The consumer gave it up (ack)."
NO_ERROR: Final = "The consumer asked for a retry (ack)."


class Item(NamedTuple):
    """A job as the caller names it; `held` None: no job can be meant."""

    id: str
    held: Held | None


class Word(NamedTuple):
    """What the caller says of a job; `settlement` None likewise."""

    id: str
    settlement: Settlement | None


def fields(body: bytes) -> Fields:
    """An absent or empty body is an empty object."""
    return json_object(body, problems.bad_body) if body.strip() else {}


def asked(given: Fields) -> Asked:
    """Raise for what is malformed (400) and then for what is above a limit (409)."""
    limits = settings()
    batch = _whole("Batch", given.get("batch"), least=1)
    expires = _seconds("Expires", given.get("expires")) or 0.0
    max_bytes = _whole("MaxBytes", given.get("maxbytes"), least=0)
    request_id = _request_id(given.get("requestid"))
    timeout = _whole("IncrementalTimeout", given.get("incrementaltimeout"), least=0)
    if timeout is not None and timeout > LONGEST_TIMEOUT:
        raise problems.bad_body("IncrementalTimeout must be at most a year")
    no_wait = _flag("NoWait", given.get("nowait"))
    if batch is not None and batch > limits.MAX_BATCH:
        raise problems.above_limit("Batch", limits.MAX_BATCH)
    longest = limits.MAX_EXPIRES.total_seconds()
    if expires > longest:
        raise problems.above_limit("Expires", longest)
    return Asked(
        1 if batch is None else batch,
        0.0 if no_wait else expires,
        min(max_bytes, LARGEST) if max_bytes else None,
        request_id,
        timedelta(seconds=timeout) if timeout else None,
    )


def asked_beside(given: Fields) -> Asked | None:
    """The pull that goes with an ack, if one does."""
    beside = given.get("pull")
    if beside is None:
        return None
    if not isinstance(beside, dict):
        raise problems.bad_body("Pull must be an object")
    return asked({key.lower(): value for key, value in beside.items()})


def words(given: Fields) -> list[Word]:
    return [_word(one) for one in _items("Results", given.get("results"))]


def leases(given: Fields) -> tuple[list[Item], timedelta | None]:
    seconds = _seconds("Seconds", given.get("seconds"))
    if seconds is not None and not 0 < seconds <= LONGEST_TIMEOUT:
        raise problems.bad_body("Seconds must be above 0 and at most a year")
    items = [_item(one) for one in _items("Leases", given.get("leases"))]
    return items, None if seconds is None else timedelta(seconds=seconds)


def pulled(asked: Asked, answer: Answer, lease_duration: timedelta = timedelta()) -> dict[str, Any]:
    """The answer to a pull."""
    jobs = answer.claim.jobs if answer.claim else []
    taken = answer.claim.taken if answer.claim else None
    sent = sum(message.size for _job, message in jobs)
    return {
        "Result": [_job(job, message, taken, lease_duration) for job, message in jobs if taken],
        "Status": {
            "Code": answer.why.code,
            "Reason": answer.why.reason,
            "PendingMessages": max(asked.batch - len(jobs), 0),
            "PendingBytes": max((asked.max_bytes or sent) - sent, 0),
        },
    }


def refused(asked: Asked, refusal: APIException) -> dict[str, Any]:
    """The answer to one beside an ack that, by itself, would be told by a status of HTTP."""
    return {
        "Result": [],
        "Status": {
            "Code": refusal.status_code,
            "Reason": str(refusal.get_codes()),
            "PendingMessages": asked.batch,
            "PendingBytes": asked.max_bytes or 0,
        },
    }


def _job(
    job: HeldJob, message: StoredMessage, taken: Taken | None, lease_duration: timedelta
) -> dict[str, Any]:
    return {
        "ID": ids.encode(job.id),
        "Priority": job.priority,
        "RetryCount": job.retry_count,
        "Deliveries": job.deliveries,
        "Key": message.key,
        "LeaseToken": str(taken.lease_token) if taken else None,
        "LeaseExpiresAt": rfc_3339(taken.leased_until) if taken else None,
        "LeaseSeconds": lease_duration.total_seconds(),
        "Message": {
            "MessageID": message.client_message_id or ids.encode(job.message_id),
            "PayloadEncoding": None,
            **payload_fields(message.payload),
            "ContentType": message.content_type,
            "Headers": message.headers,
            "PublishedAt": rfc_3339(message.published_at),
        },
    }


def _items(name: str, value: object) -> Sequence[Fields]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise problems.bad_body(f"{name} must be a list of objects")
    if len(value) > settings().MAX_BATCH:
        raise problems.bad_body(f"{name} has more than {settings().MAX_BATCH} entries")
    return [{key.lower(): one[key] for key in one} for one in value]


def _item(given: Fields) -> Item:
    id, token = given.get("id"), given.get("leasetoken")
    if not isinstance(id, str) or not isinstance(token, str):
        raise problems.bad_body("ID and LeaseToken must be text, as the pull gave them")
    try:
        return Item(id, Held(ids.decode(id), _lease(token)))
    except ValueError:
        return Item(id, None)


def _lease(token: str) -> UUID:
    try:
        return UUID(token)
    except ValueError:
        return NO_LEASE


def _word(given: Fields) -> Word:
    item = _item(given)
    outcome = given.get("outcome")
    delay = _seconds("DelaySeconds", given.get("delayseconds"))
    told = [_text(name, given.get(name.lower())) for name in ("Reason", "Error")]
    if not isinstance(outcome, str) or outcome not in OUTCOMES:
        raise problems.bad_body(f"Outcome must be one of {', '.join(OUTCOMES)}")
    said = clean(": ".join(one for one in told if one))
    return Word(item.id, OUTCOMES[outcome](item.held, said, delay) if item.held else None)


def _retry(held: Held, said: str, delay: float | None) -> Settlement:
    after = None if delay is None else timedelta(seconds=min(delay, LONGEST_DELAY))
    return outcomes.retry(held, said or NO_ERROR, after=after)


OUTCOMES: Final[Mapping[str, Callable[[Held, str, float | None], Settlement]]] = {
    "DELIVERED": lambda held, said, delay: outcomes.deliver(held),
    "DEAD": lambda held, said, delay: outcomes.reject(held, said or NO_REASON),
    "RETRY": _retry,
    "RELEASE": lambda held, said, delay: outcomes.release(held),
}


def _whole(name: str, value: object, *, least: int) -> int | None:
    if value is None:
        return None
    if type(value) is not int or value < least:  # True is an int
        raise problems.bad_body(f"{name} must be a whole number from {least}")
    return value


def _seconds(name: str, value: object) -> float | None:
    if value is None:
        return None
    seconds = -1.0
    if isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(OverflowError):
            seconds = float(value)
    if not 0 <= seconds < math.inf:
        raise problems.bad_body(f"{name} must be a number of seconds from 0")
    return seconds


def _flag(name: str, value: object) -> bool:
    if value is not None and not isinstance(value, bool):
        raise problems.bad_body(f"{name} must be true or false")
    return bool(value)


def _text(name: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise problems.bad_body(f"{name} must be text")
    return value


def _request_id(value: object) -> str | None:
    text = _text("RequestID", value) or None
    if text is not None and (len(text) > LONGEST_REQUEST_ID or not text.isprintable()):
        raise problems.bad_body(
            f"RequestID must be at most {LONGEST_REQUEST_ID} printable characters"
        )
    return text
