"""Check of a census against a plain loop: a difference is a bug of pulljobs or of the demo."""

import os
import socket
from collections.abc import Iterator

from example_project.census import plain, runs
from example_project.census.models import Run
from example_project.census.plain import Census, Counted
from example_project.census.pull_handlers import PATIENCE
from example_project.census.summary import Summary, counts_of, paths_of
from pulljobs.models import Node
from pulljobs.states import State


def problems(run: Run, summary: Summary, *, undisturbed: bool) -> list[str]:
    """Return a sentence for each difference between a census and a plain loop over its files.

    `undisturbed` means that no worker was killed, so that the number of retries is known, too.
    """
    expected = plain.take(paths_of(run).values())
    return [*_sums(summary, undisturbed=undisturbed), *_nodes(run), *_contents(run, expected)]


def _sums(summary: Summary, *, undisturbed: bool) -> Iterator[str]:
    if not summary.adds_up:
        yield (
            f"{summary.jobs} jobs are not {summary.delivered} delivered + {summary.dead} dead, "
            f"or {summary.duplicates} are not 0 done twice."
        )
    if summary.jobs != 2 * summary.published:
        yield f"{summary.published} messages made {summary.jobs} jobs, not 2 each."
    expected = summary.dead * PATIENCE["max_retries"]
    if undisturbed and summary.retried != expected:
        yield f"There were {summary.retried} retries, not {expected} for {summary.dead} dead jobs."


def _nodes(run: Run) -> Iterator[str]:
    here = f"{socket.gethostname()}:{os.getpid()}"
    working = set(runs.archived(run).values_list("node_id", flat=True))
    names = dict(Node.objects.filter(id__in=filter(None, working)).values_list("id", "name"))
    if working != names.keys() or here in names.values():
        yield f"Jobs were settled by {sorted(names.values())} (this process is {here})."


def _contents(run: Run, expected: Census) -> Iterator[str]:
    done = _census(run)
    for kind, actual, wanted in (
        ("counts", done.counted.items(), expected.counted.items()),
        ("digests", done.digests.items(), expected.digests.items()),
        ("failing files", done.refused, expected.refused),
    ):
        if differing := sorted({str(entry) for entry in actual ^ wanted}):
            yield f"The {kind} differ from the plain loop's: {'; '.join(differing[:10])}."


def _census(run: Run) -> Census:
    """Return the results of a census from the database, to be compared with the plain loop."""
    paths = paths_of(run)
    counts = counts_of(run).values_list("message_id", *Counted._fields)
    digests = (
        runs.archived(run)
        .filter(consumer__name="digest", state=State.DELIVERED)
        .values_list("message_id", "result__sha256")
    )
    return Census(
        {paths[message_id]: Counted(*numbers) for message_id, *numbers in counts},
        {paths[message_id]: sha256 for message_id, sha256 in digests},
        {
            (consumer, paths[message_id])
            for consumer, message_id in runs.dead(run).values_list("consumer__name", "message_id")
        },
    )
