"""Throttles of consumers and keys, which keep all processes from claiming their jobs."""

from collections.abc import Mapping

from pulljobs.engine.claiming.keyed import Key
from pulljobs.models import Job
from pulljobs.storage import listen, turns
from pulljobs.storage.sessions import LOCK_SECONDS
from pulljobs.storage.statements import run
from pulljobs.storage.transactions import brief


def throttle(using: str, seconds: Mapping[int, float]) -> None:
    """Throttle consumers, each for its number of seconds, and wake their waiters.

    A throttle that lasts longer stays. The next claim of a woken process gets no job, but reports
    the throttle. The process then starts none of the jobs that it claimed before.
    """
    ids = sorted(seconds)
    params = {"consumer_ids": ids, "seconds": [seconds[id] for id in ids]}
    with brief(using, lock_seconds=LOCK_SECONDS):
        rows = run(using, "throttle", params)
    listen.wake_on_commit(using, [row.id for row in rows])


def throttle_keys(using: str, seconds: Mapping[Key, float]) -> None:
    """Throttle keys, each for its number of seconds.

    A throttle that lasts longer stays. A consumer whose keys do not take turns is throttled itself.
    """
    by_turn = turns.throttle(using, seconds)
    others: dict[int, float] = {}
    for (consumer_id, _key), left in seconds.items():
        if consumer_id not in by_turn:
            others[consumer_id] = max(left, others.get(consumer_id, 0.0))
    if others:
        throttle(using, others)


def throttle_keys_of_jobs(using: str, consumer_id: int, seconds: Mapping[int, float]) -> None:
    """Call `throttle_keys` for the keys of live jobs of a consumer, given the seconds by job id."""
    rows = Job.objects.using(using).filter(id__in=seconds, consumer_id=consumer_id)
    of_keys: dict[Key, float] = {}
    for id, turn_key in rows.values_list("id", "turn_key"):
        key = consumer_id, turn_key or ""
        of_keys[key] = max(seconds[id], of_keys.get(key, 0.0))
    if of_keys:
        throttle_keys(using, of_keys)
