"""Pulls and acks of `benchmarks.sql_asgi`: the claims and settlements of the API and no more."""

import json
from functools import cache
from typing import Any
from uuid import UUID

from benchmarks.database import consumer
from pulljobs import ids, pulling
from pulljobs.conf import settings
from pulljobs.engine.outcomes import Held, deliver
from pulljobs.models import Lease
from pulljobs.storage import sessions


def dedicate() -> None:
    """Apply the session settings of the API's connections to the connection of this thread."""
    sessions.dedicate(settings().DATABASE)


def pull(body: Any) -> bytes:
    """Claim as many jobs as `Batch` of the body says. Return the answer of a pull as JSON."""
    claim = _puller().claim(body["Batch"])
    token = str(claim.taken.lease_token) if claim.taken else ""
    jobs = [
        {"ID": ids.encode(job.id), "LeaseToken": token, "Payload": bytes(message.payload).decode()}
        for job, message in claim.jobs
    ]
    return json.dumps({"Result": jobs}).encode()


def ack(body: Any) -> bytes:
    """Deliver the jobs of the body, and return the JSON of the ids that were settled."""
    helds = [Held(ids.decode(each["ID"]), UUID(each["LeaseToken"])) for each in body["Results"]]
    done = pulling.finish([deliver(held) for held in helds])
    return json.dumps({"Result": [ids.encode(id) for id in done.states]}).encode()


@cache
def _puller() -> pulling.Puller:
    return pulling.Puller(settings().DATABASE, consumer(), via=Lease.Via.PULL)
