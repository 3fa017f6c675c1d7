"""Versions of runs that workers accept, which their heartbeats report."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pulljobs import handlers
from pulljobs.conf import settings
from pulljobs.diagnosis import serving
from pulljobs.models import Consumer, Node
from pulljobs.storage import backlog, counts
from pulljobs.storage.sessions import LOCK_SECONDS
from pulljobs.storage.statements import run
from pulljobs.storage.transactions import retrying
from pulljobs.worker.subscriptions import is_chosen
from pulljobs.workflows import definitions
from pulljobs.workflows.models import WorkflowRun

REPORTED: Final = "workflows"
"""Key of a worker's report under which the versions are."""
AT_ONCE: Final = 500
"""Largest number of runs of a consumer that one statement takes up."""
ANY: Final = (1, definitions.HIGHEST_VERSION)
"""Range of a worker that reports no versions for a consumer that it serves."""


class LiveRuns(NamedTuple):
    """Number of runs of one consumer, version and kind, such as `ready`, `sleep` or `dead`."""

    consumer_id: int
    version: int
    kind: str
    runs: int
    oldest_id: int
    overdue_seconds: float | None


class StrandedRuns(NamedTuple):
    """Number of queued runs of one version that no living worker of their consumer accepts."""

    consumer: Consumer
    version: int
    runs: int
    oldest_id: int
    accepted: list[tuple[int, int]]
    """Pairs of oldest and newest version that living workers of the consumer accept."""


def report_versions() -> dict[str, list[int]]:
    """Return the [oldest, newest] version that this process accepts, by channel/consumer."""
    return {
        f"{each.channel}/{each.consumer}": [each.oldest_version, each.version]
        for each in definitions.registered()
    }


def take_up(using: str) -> list[int]:
    """Queue runs whose version other workers refused and this worker accepts.

    Return the id of the consumer of each of them, up to `AT_ONCE` for each consumer. The caller
    wakes the workers.
    """
    served = list(_read_served())
    if not served:
        return []
    params = {
        "channels": [each.channel for each in served],
        "consumers": [each.consumer for each in served],
        "oldest": [each.oldest_version for each in served],
        "newest": [each.version for each in served],
        "wanted": AT_ONCE,
    }
    rows = retrying(using, lambda: run(using, "take_up_runs", params, seconds=LOCK_SECONDS))
    return [row.consumer_id for row in rows]


def _read_served() -> Iterator[definitions.Workflow]:
    """Yield the workflows whose consumers this worker serves."""
    only, exclude = settings().ONLY, settings().EXCLUDE
    names = {handler.names: handler.selectors for handler in handlers.registered()}
    for each in definitions.registered():
        if is_chosen(names.get((each.channel, each.consumer), set()), only, exclude):
            yield each


def find_consumers(using: str) -> dict[int, Consumer]:
    """Return by id the consumers with a workflow in this process or in the report of a worker."""
    nodes = [*serving.living(), *serving.gone()]
    paths = {path for node in nodes for path in _reported(node)} | report_versions().keys()
    if not paths:
        return {}
    return {row.pk: row for row in counts.consumers(using) if row.path in paths}


def count_live(using: str, consumer_ids: Sequence[int]) -> list[LiveRuns]:
    """Count the runs that have begun and are not delivered, by consumer, version and kind.

    Only the first jobs of each consumer are read, and fewer if there are more consumers, so the
    numbers of a consumer with many jobs are too low.
    """
    if not consumer_ids:
        return []
    params = {"consumer_ids": list(consumer_ids), "cap": backlog.choose_cap(len(consumer_ids))}
    return run(using, "count_live_runs", params, kind=LiveRuns)


def find_stranded(
    consumers: Mapping[int, Consumer], counted: Sequence[LiveRuns]
) -> list[StrandedRuns]:
    """Return those queued runs in `counted` that no living worker of their consumer accepts.

    Runs are added up by consumer and version. Consumers without a living worker are left out.
    """
    accepted = read_accepted()
    queued: defaultdict[tuple[int, int], list[LiveRuns]] = defaultdict(list)
    for row in counted:
        if row.kind not in ("dead", "in_flight"):
            queued[row.consumer_id, row.version].append(row)
    return [
        StrandedRuns(
            consumers[consumer_id],
            version,
            sum(row.runs for row in rows),
            min(row.oldest_id for row in rows),
            ranges,
        )
        for (consumer_id, version), rows in queued.items()
        if not accepts(ranges := accepted.get(consumers[consumer_id].path, []), version)
    ]


def read_accepted() -> dict[str, list[tuple[int, int]]]:
    """Return the (oldest, newest) versions that living workers accept, by `channel/consumer`."""
    accepted: defaultdict[str, set[tuple[int, int]]] = defaultdict(set)
    for node in serving.living():
        reported = _reported(node)
        for path in node.report.get("serves", ()):
            first, last = reported.get(path, ANY)
            accepted[path].add((first, last))
    return {path: sorted(ranges) for path, ranges in accepted.items()}


def accepts(ranges: Sequence[tuple[int, int]], version: int) -> bool:
    """Return True if one of the workers' ranges has the version, or if there is no worker."""
    return not ranges or any(first <= version <= last for first, last in ranges)


def describe_left(using: str, consumer_id: int, row: WorkflowRun) -> str:
    """Return why a queued run waits for a worker with other code, or "" if it does not."""
    rows = Consumer.objects.using(using).select_related("channel")
    consumer = rows.filter(pk=consumer_id).first()
    if consumer is None:  # The row of the consumer was deleted by SQL.
        return ""
    path = consumer.path
    ranges = read_accepted().get(path, [])
    if not accepts(ranges, row.version):
        return (
            f"The run has version {row.version}, and the living workers of {path} accept "
            f"{format_ranges(ranges)}: it waits for a worker with code that accepts it."
        )
    if row.waiting_consumer is None:
        return ""
    return (
        f"The run has version {row.version}, and a worker with other code has left it: a worker "
        "that accepts it takes it up within seconds."
    )


def format_ranges(ranges: Sequence[tuple[int, int]]) -> str:
    """Format ranges of versions for people, such as "2 to 3"."""
    texts = [str(last) if first == last else f"{first} to {last}" for first, last in ranges]
    return " and ".join(texts)


def _reported(node: Node) -> Mapping[str, Any]:
    reported: Mapping[str, Any] = node.report.get(REPORTED, {})
    return reported
