"""Claims of as many jobs as have messages of at most a number of bytes together."""

from collections.abc import Callable, Mapping, Sequence

from django.db import transaction

from pulljobs.engine.encodings import integer_array
from pulljobs.storage.rows import Claimed, HeldJob, Refusal
from pulljobs.storage.statements import run
from pulljobs.storage.transactions import brief

ClaimUpTo = Callable[[int], Claimed | None]
"""Function that claims at most that many jobs. None: the rules of the consumer have changed."""


def claim_within(using: str, wanted: int, max_bytes: int, claim: ClaimUpTo) -> Claimed | None:
    """Claim up to `wanted` jobs whose messages together have at most `max_bytes`.

    `claim` claims a number of jobs. If they are too large, the claim is rolled back and fewer are
    claimed. The result has the refusal MAX_BYTES if the size kept a job out, or is None if that of
    `claim` is.
    """
    tried = wanted
    while True:
        with brief(using):
            claimed = claim(tried)
            if claimed is None:
                return None
            fit = _count_fitting(using, claimed.jobs, max_bytes)
            if fit == len(claimed.jobs):
                break
            transaction.set_rollback(True, using=using)
        if not fit:
            return claimed.without_jobs(Refusal.MAX_BYTES)
        tried = fit
    cut = tried < wanted and len(claimed.jobs) == tried and claimed.refusal is None
    return claimed._replace(refusal=Refusal.MAX_BYTES) if cut else claimed


def _count_fitting(using: str, jobs: list[HeldJob], max_bytes: int) -> int:
    """Return how many jobs from the first on fit in `max_bytes`.

    No large job is skipped, because smaller ones would overtake it for ever.
    """
    if not jobs:
        return 0
    sizes = _read_sizes(using, [job.message_id for job in jobs])
    left = max_bytes
    for count, job in enumerate(jobs):
        left -= sizes[job.message_id]
        if left < 0:
            return count
    return len(jobs)


def _read_sizes(using: str, message_ids: Sequence[int]) -> Mapping[int, int]:
    """Return the bytes of payload and headers of messages, by their ids, without reading them."""
    ids, lowest, highest = integer_array(message_ids), min(message_ids), max(message_ids)
    params = {"ids": ids, "lowest": lowest, "highest": highest}
    return {row.id: row.size for row in run(using, "message_sizes", params)}
