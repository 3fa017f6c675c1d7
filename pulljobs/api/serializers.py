"""The JSON of the protocol: PascalCase keys, read in any case."""

import base64
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, NamedTuple, NoReturn

from pulljobs import ids
from pulljobs.api import exceptions
from pulljobs.states import State
from pulljobs.storage.protocol import WaitingJob
from pulljobs.storage.rows import StoredMessage

LONGEST_TIMEOUT: Final = 365 * 86_400


class Transition(NamedTuple):
    """The body of a job POST."""

    target: State
    incremental_timeout: timedelta | None


def transition(body: bytes) -> Transition:
    fields = json_object(body)
    state = fields.get("nextstate")
    if not isinstance(state, str) or state not in list(State):
        raise exceptions.malformed("NextState must be INFLIGHT, DELIVERED or DEAD")
    return Transition(State(state), _timeout(fields.get("incrementaltimeout")))


def queued_job(job: WaitingJob, message: StoredMessage) -> dict[str, Any]:
    timeout = job.incremental_timeout or timedelta()
    return {
        "ID": ids.encode(job.id),
        "Priority": job.priority,
        "IncrementalTimeout": int(timeout.total_seconds()),
        "Message": {
            "MessageID": message.client_message_id or ids.encode(job.message_id),
            **payload_fields(message.payload),
            "Headers": message.headers,
            "ContentType": message.content_type,
        },
    }


def payload_fields(payload: bytes) -> dict[str, str]:
    try:
        return {"Payload": payload.decode()}
    except UnicodeDecodeError:
        return {"Payload": base64.b64encode(payload).decode(), "PayloadEncoding": "base64"}


def json_object(
    body: bytes, refusal: Callable[[str], Exception] = exceptions.malformed
) -> dict[str, Any]:
    """The JSON object with its keys in lower case."""
    try:
        parsed = json.loads(body.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise refusal("The body is not JSON") from error
    if not isinstance(parsed, dict):
        raise refusal("The body is not a JSON object")
    return {key.lower(): value for key, value in parsed.items()}


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _timeout(value: object) -> timedelta | None:
    """None for what counts as absent: null and 0."""
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= LONGEST_TIMEOUT:  # True is an int
        raise exceptions.malformed("IncrementalTimeout must be whole seconds, from 0 to a year")
    return timedelta(seconds=value) or None
