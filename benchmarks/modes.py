"""What the options ask for, in a database of its own."""

import argparse
from typing import Final

from benchmarks.database import own_database
from benchmarks.limit import as_many_as_cores, limit
from benchmarks.loops import DESIGNS
from benchmarks.pinned import pinned
from benchmarks.trickle import trickle

LIMIT_JOBS: Final = [100_000, 1_000_000]
PINNED_JOBS: Final = [300_000]


def run(options: argparse.Namespace) -> None:
    designs = _designs(options.designs)
    with own_database():
        if options.trickle is not None:
            trickle(options.trickle, slow=options.slow_publishers, as_json=options.json)
        elif options.pinned:
            for jobs in options.jobs or PINNED_JOBS:
                pinned(jobs, designs, batch=options.batch, as_json=options.json)
        else:
            limit(
                options.jobs or LIMIT_JOBS,
                designs,
                processes=options.processes or as_many_as_cores(),
                batch=options.batch,
                rounds=options.rounds,
                publishing=(options.publish_rounds, options.publishes),
                as_json=options.json,
            )


def _designs(wanted: list[str] | None) -> list[str]:
    unknown = set(wanted or ()) - set(DESIGNS)
    if unknown:
        raise SystemExit(f"No design {', '.join(unknown)}: choose of {', '.join(DESIGNS)}.")
    return wanted or list(DESIGNS)
