"""Checks of runs for `manage.py pulljobs doctor`."""

from collections.abc import Iterator

from pulljobs import ids
from pulljobs.conf import settings
from pulljobs.diagnosis.database_checks import Finding
from pulljobs.workflows import versions
from pulljobs.workflows.versions import StrandedRuns


def check_runs() -> Iterator[Finding]:
    """Report runs of versions that no living worker of their consumer accepts, if it has some."""
    using = settings().DATABASE
    consumers = versions.find_consumers(using)
    counted = versions.count_live(using, list(consumers))
    for stranded in versions.find_stranded(consumers, counted):
        yield Finding("stranded_runs", True, _describe(stranded))


def _describe(stranded: StrandedRuns) -> str:
    runs = "1 run" if stranded.runs == 1 else f"{stranded.runs:,} runs"
    path = stranded.consumer.path
    return (
        f"{runs} of {path} can't go on: version {stranded.version}, and its living workers accept "
        f"{versions.format_ranges(stranded.accepted)}. The oldest is "
        f"{ids.encode(stranded.oldest_id)}. Start a worker with code that accepts it, or accept it "
        f"with oldest_version={stranded.version} after `pulljobs workflows check`."
    )
