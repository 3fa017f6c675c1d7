"""What the tables say at the end."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import psycopg


class Live(NamedTuple):
    state: str
    retry_count: int


class Settled(NamedTuple):
    token: str
    state: str
    retry_count: int


@dataclass(frozen=True)
class Tables:
    live: dict[int, Live] = field(default_factory=dict)
    archived: dict[int, list[Settled]] = field(default_factory=dict)
    """Settlements in their order."""
    keys: dict[int, str] = field(default_factory=dict)
    """Of jobs that have one."""

    def __contains__(self, job: int) -> bool:
        return job in self.live or job in self.archived

    def delivered(self, job: int) -> list[Settled]:
        return [one for one in self.archived.get(job, ()) if one.state == "DELIVERED"]


def read(connection: psycopg.Connection[Any]) -> Tables:
    live = connection.execute("SELECT id, state, retry_count FROM pulljobs_job").fetchall()
    rows = connection.execute(
        "SELECT job_id, lease_token::text, state, retry_count"
        " FROM pulljobs_archived_job ORDER BY id"
    ).fetchall()
    archived = defaultdict(list)
    for job, *row in rows:
        archived[job].append(Settled(*row))
    keys = connection.execute(
        "SELECT job_id, key FROM pulljobs_archived_job AS archived"
        " JOIN pulljobs_message AS message ON message.id = archived.message_id"
        " WHERE key IS NOT NULL"
    ).fetchall()
    return Tables({job: Live(*row) for job, *row in live}, archived, dict(keys))
