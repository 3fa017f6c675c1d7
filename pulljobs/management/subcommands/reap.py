"""Give back what leases hold that are over, as every worker does."""

from typing import Any

from pulljobs import pulling
from pulljobs.management.subcommands import Answer


def handle(**options: Any) -> Answer:
    given_back = 0
    while (jobs := pulling.reap()) is not None:
        given_back += jobs
    return Answer.of({"given_back": given_back})
