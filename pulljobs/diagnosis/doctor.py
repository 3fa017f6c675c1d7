"""Checks for `pulljobs doctor`. Each check yields findings that say what to do."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Final

from django.db.models.functions import Now

from pulljobs import hooks
from pulljobs.conf import settings
from pulljobs.diagnosis import key_checks, serving, times
from pulljobs.diagnosis.database_checks import (
    Finding,
    default_partitions,
    list_names,
    missing_grants,
    missing_partitions,
    old_snapshots,
    read_only_sessions,
    run_check,
    tables_not_owned,
    wrong_isolation,
)
from pulljobs.models import Consumer, Job, Lease, LimitGroup
from pulljobs.models.flow import FlowLimits
from pulljobs.states import State
from pulljobs.storage import backlog, dead, leases
from pulljobs.storage.backlog import JobCounts, count_jobs
from pulljobs.storage.jobs import stats

UNREAPED: Final = timedelta(seconds=30)
"""Time that a lease may be over before it is reported, in addition to the reaper's interval."""
LONG_QUEUE: Final = timedelta(hours=1)
"""Time in which a consumer with a rate should be able to claim its ready jobs."""
LOOKED_AT: Final = 100_000
MOST_READY: Final = 10_000
"""Ready jobs of a consumer from which on `slow_rates` estimates their number."""
COUNTED: Final = 1_000


def examine(snapshot_age: timedelta) -> list[Finding]:
    """Run all checks and return their findings. Report snapshots older than `snapshot_age`."""
    snapshots = partial(old_snapshots, snapshot_age)
    checks = (snapshots, *CHECKS, *map(hooks.load, hooks.doctor_checks))
    return list(dict.fromkeys(finding for check in checks for finding in run_check(check)))


def paused_consumers() -> Iterator[Finding]:
    """Report consumers that are paused, by themselves or with their channel."""
    for consumer in serving.paused():
        until = max(
            moment for moment in (consumer.paused_until, consumer.channel.paused_until) if moment
        )
        text = f"{consumer.path} is paused until {times.format_time(until)}."
        yield Finding("paused", False, text)


def throttled_consumers() -> Iterator[Finding]:
    """Report consumers that a handler or an endpoint has throttled."""
    rows = Consumer.objects.using(settings().DATABASE).filter(throttled_until__gt=Now())
    for consumer in rows.filter(deleted_at=None).select_related("channel"):
        until = times.format_time(consumer.throttled_until)
        text = f"{consumer.path} is throttled until {until}: `pulljobs resume` ends that."
        yield Finding("throttled", False, text)


def full_keys() -> Iterator[Finding]:
    """Report consumers with keys at `max_queued_per_key`, or with too many jobs to count."""
    using = settings().DATABASE
    bounded = Consumer.objects.using(using).filter(max_queued_per_key__gt=0, deleted_at=None)
    for consumer in bounded.select_related("channel"):
        jobs = _bounded_jobs(consumer)
        counts = Counter(map(str, jobs))
        keys = [key for key, n in counts.most_common() if n >= consumer.max_queued_per_key]
        text = (
            f"{consumer.path} has full keys of {consumer.max_queued_per_key} or more jobs, whose "
            f"next message is subject to key_overflow={consumer.key_overflow}: {list_names(keys)}."
            if keys
            else f"{consumer.path} may have full keys."
        )
        if is_cut_off := len(jobs) == LOOKED_AT:
            text += f" Only the first {LOOKED_AT:,} of its jobs by key were read."
        if keys or is_cut_off:
            yield Finding("full_keys", False, text)


def _bounded_jobs(consumer: Consumer) -> list[str | None]:
    """Return the key of each job that `max_queued_per_key` counts, sorted, at most `LOOKED_AT`."""
    counted = [State.QUEUED]
    if consumer.key_limit_counts == Consumer.KeyLimitCounts.LIVE:
        counted.append(State.INFLIGHT)
    rows = Job.objects.using(settings().DATABASE).filter(
        consumer=consumer, key__isnull=False, reason__isnull=True, state__in=counted
    )
    return list(rows.order_by("key", "id").values_list("key", flat=True)[:LOOKED_AT])


def slow_rates() -> Iterator[Finding]:
    """Report consumers and limit groups whose ready jobs take over an hour at their rate limit.

    Each job counts as one token.
    """
    using = settings().DATABASE
    rows = Consumer.objects.using(using).filter(deleted_at=None).select_related("channel")
    for consumer in rows.exclude(rate_per_second=None):
        yield from _slow_rate(consumer.path, consumer, [consumer.pk])
    groups = LimitGroup.objects.using(using).exclude(rate_per_second=None)
    for group in groups.prefetch_related("consumers"):
        members = [consumer.pk for consumer in group.consumers.all()]
        yield from _slow_rate(f"Limit group {group.name}", group, members)


def _slow_rate(name: str, limited: FlowLimits, consumer_ids: list[int]) -> Iterator[Finding]:
    """Yield a finding if claiming the ready jobs takes over an hour at the rate limit."""
    counted = count_jobs(settings().DATABASE, consumer_ids, MOST_READY)
    ready = sum(map(_estimate_ready, counted))
    takes = timedelta(seconds=ready / (limited.rate_per_second or 1))
    if takes > LONG_QUEUE:
        text = (
            f"{name} has {_degree(counted, ready)}{ready:,} ready jobs, which take "
            f"{takes / timedelta(hours=1):,.1f} hours at its rate of {limited.rate}: raise the "
            "rate, or publish less."
        )
        yield Finding("rate_limited", False, text)


def _degree(counted: list[JobCounts], ready: int) -> str:
    if not any(row.ready >= MOST_READY for row in counted):
        return ""
    return "about " if ready > sum(row.ready for row in counted) else "at least "


def _estimate_ready(counted: JobCounts) -> int:
    """Return how many ready jobs a consumer has, from `MOST_READY` on by the planner's estimate.

    That is the estimate of QUEUED jobs, less the delayed and blocked ones. If those are too many to
    be counted, return `MOST_READY`: nearly all of the estimate may be jobs that nothing can claim.
    """
    others = (counted.delayed, counted.blocked)
    if counted.ready < MOST_READY or max(others) >= MOST_READY or counted.blocked_is_least:
        return counted.ready
    queued = backlog.estimate_queued(settings().DATABASE, counted.consumer_id)
    return max(counted.ready, queued - sum(others))


def unserved_consumers() -> Iterator[Finding]:
    """Report consumers with ready jobs that no process serves. Paused consumers are left out."""
    using, living = settings().DATABASE, serving.living()
    paused = [consumer.pk for consumer in serving.paused()]
    rows = Consumer.objects.using(using).filter(deleted_at=None).exclude(pk__in=paused)
    consumers = list(rows.select_related("channel"))
    ready = backlog.ready(using, [consumer.pk for consumer in consumers])
    for consumer in consumers:
        if consumer.pk in ready and not serving.is_served(consumer, living):
            yield Finding(
                "no_worker",
                True,
                f"Jobs of {consumer.path} wait and no process serves it: "
                f"{serving.advise_to_serve(consumer)}.",
            )


def deleted_consumers() -> Iterator[Finding]:
    """Report consumers marked as deleted that have jobs left, which can never run.

    The admin leaves them their jobs, and a publish under way may add some.
    """
    using = settings().DATABASE
    rows = Consumer.objects.using(using).exclude(deleted_at=None).select_related("channel")
    for consumer in rows:
        has = stats(using, consumer.pk, COUNTED)
        if has.waiting:
            yield Finding(
                "deleted_consumer",
                True,
                f"{consumer.path} is deleted and {_counted(has.waiting)} can never run, "
                "and their messages keep old partitions: restore the consumer in the admin, or "
                "kill the jobs there.",
            )
        if has.dead:
            yield Finding(
                "deleted_consumer_dead",
                False,
                f"{consumer.path} is deleted and {_counted(has.dead)} are DEAD, and "
                "their messages keep old partitions: delete the jobs in the admin, or delete the "
                "consumer over HTTP again.",
            )


def _counted(jobs: int) -> str:
    return f"{jobs:,} of its jobs{' or more' if jobs >= COUNTED else ''}"


def dead_jobs() -> Iterator[Finding]:
    """Report consumers with dead jobs. Deleted consumers have a finding of their own."""
    using = settings().DATABASE
    rows = Consumer.objects.using(using).filter(deleted_at=None).select_related("channel")
    consumers = {consumer.pk: consumer for consumer in rows}
    for consumer_id, count in dead.counts(using, list(consumers)).items():
        path, jobs = consumers[consumer_id].path, "job" if count == 1 else "jobs"
        more = " or more" if count >= dead.COUNTED else ""
        text = (
            f"{path} has {count:,} dead {jobs}{more}: see the errors with `pulljobs list --state "
            f"DEAD --only {path}`, then redrive or delete them."
        )
        if count:
            yield Finding("dead_jobs", False, text)


def leases_not_reaped() -> Iterator[Finding]:
    """Report leases that ended so long ago that no reaper can be at work."""
    late = UNREAPED + settings().REAP_INTERVAL
    count, oldest = leases.count_expired(settings().DATABASE, late)
    if oldest is not None:
        yield Finding(
            "not_reaped",
            True,
            f"{_leases(count)} expired at {times.format_time(oldest)} or later, and no process "
            "gives the jobs back: start a worker, or run `pulljobs reap`. "
            "Servers of the HTTP API reap, too, from their first pull or job POST on, unless "
            "REAP_WHILE_SERVING is False. Spark's streams reap while they run.",
        )


def no_reaper() -> Iterator[Finding]:
    """Report leases if no worker lives and REAP_WHILE_SERVING is False: nothing would reap them."""
    if settings().REAP_WHILE_SERVING or serving.has_worker():
        return
    leases = Lease.objects.using(settings().DATABASE).exclude(via=Lease.Via.SPARK)
    if held := leases.count():
        yield Finding(
            "no_reaper",
            False,
            f"No worker lives, and REAP_WHILE_SERVING is False: if the holders of {_leases(held)} "
            "crash, the jobs do not come back. Start a worker, or remove the setting.",
        )


def nodes_gone() -> Iterator[Finding]:
    """Report nodes whose heartbeats ended within the last day without a regular stop."""
    for node in serving.gone():
        held = Lease.objects.using(settings().DATABASE).filter(node_id=node.pk).count()
        yield Finding(
            "node_gone",
            bool(held),
            f"Node {node.name} has had no heartbeat since "
            f"{times.format_time(node.heartbeat_at)}. It holds "
            + (f"{_leases(held)}: the jobs come back by expiry." if held else "no lease."),
        )


def _leases(count: int) -> str:
    return "1 lease" if count == 1 else f"{count:,} leases"


def sick_nodes() -> Iterator[Finding]:
    """Report living nodes in which a loop has died or fails all the time, or a circuit is open."""
    for node in serving.living():
        if ended := serving.dead_loops(node):
            text = f"Node {node.name} has a dead loop: its {list_names(ended)} is dead. Restart it."
            yield Finding("dead_loop", True, text)
        if failing := serving.failing_loops(node):
            text = (
                f"Node {node.name} has loops whose passes fail again and again: "
                f"{list_names(failing)}. Read the error in the log of that process."
            )
            yield Finding("failing_loop", True, text)
        for held in serving.held_back(node):
            text = (
                f"Node {node.name} holds {held.subject} back at level {held.level}: {held.cause}; "
                f"{held.prospect}."
            )
            yield Finding("circuit", False, text)


CHECKS: Final[tuple[Callable[[], Iterator[Finding]], ...]] = (
    paused_consumers,
    throttled_consumers,
    full_keys,
    slow_rates,
    key_checks.throttled_keys,
    key_checks.keys_without_slots,
    default_partitions,
    tables_not_owned,
    read_only_sessions,
    wrong_isolation,
    missing_grants,
    missing_partitions,
    unserved_consumers,
    deleted_consumers,
    dead_jobs,
    leases_not_reaped,
    no_reaper,
    nodes_gone,
    sick_nodes,
)
