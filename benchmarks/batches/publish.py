"""Program of `batch-faults` that creates the tables and consumers, or publishes batches.

    python -m benchmarks.batches.publish prepare
    python -m benchmarks.batches.publish NAME BATCHES MEMBERS DYING

The second form publishes BATCHES batches of MEMBERS jobs, of which DYING are rejected.
"""

import sys
from typing import Final

import django

CHUNK: Final = 20_000


def prepare() -> None:
    """Migrate, and create the consumers of the handlers."""
    from django.core.management import call_command

    from pulljobs import handlers

    call_command("migrate", verbosity=0)
    handlers.autodiscover()
    handlers.sync_consumers()


def publish(name: str, count: int, members: int, dying: int) -> None:
    """Publish batches of `members` jobs, of which `dying` are rejected. Print the batch ids."""
    from pulljobs import batches

    for number in range(count):
        made = batches.create(
            f"{name}-{number}",
            on_complete=("callbacks", b"complete"),
            on_success=("callbacks", b"success"),
            on_dead=("callbacks", b"dead"),
        )
        for start in range(0, members, CHUNK):
            size = min(CHUNK, members - start)
            payloads = [b"dies" if start + each < dying else b"works" for each in range(size)]
            made.publish_many("members", payloads)
        made.close()
        print(made, flush=True)


if __name__ == "__main__":
    django.setup()
    if sys.argv[1:] == ["prepare"]:
        prepare()
    else:
        publish(sys.argv[1], *map(int, sys.argv[2:]))
