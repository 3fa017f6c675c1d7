"""Letting go of exclusive keys: `storage.keys` says how keys are kept."""

from collections.abc import Collection

from pulljobs.engine.claiming.session import Row, Session
from pulljobs.engine.encodings import array

Key = tuple[int, str]
"""A consumer and a key."""


def lock(session: Session, keys: Collection[Key]) -> list[Row]:
    """Those of them that are known, waiting for claims to end."""
    return session.run("lock_keys", _columns(keys))


def free(session: Session, locked: Collection[Row], let_go: Collection[int]) -> bool:
    """Let the next job of each be claimed, if its job is settled or has `let_go` of it.

    Whether any may be claimed now that could not before, or a key without jobs was forgotten.
    """
    if not locked:
        return False
    [(changed,)] = session.run("free_keys", {**_columns(locked), "job_ids": array(let_go)})
    return bool(changed)


def _columns(keys: Collection[Row]) -> dict[str, str]:
    return {
        "consumer_ids": array(consumer_id for consumer_id, _key in keys),
        "keys": array(key for _consumer_id, key in keys),
    }
