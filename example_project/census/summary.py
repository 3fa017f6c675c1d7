"""Summary of a census, read from the database, as text and as JSON."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from django.db.models import Count as Number
from django.db.models import F, Max, QuerySet, Sum

from example_project.census import runs
from example_project.census.models import Count, Run
from pulljobs.models import Message
from pulljobs.states import State

LARGEST_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Numbers of jobs of a census, what they counted, and which files failed."""

    published: int
    jobs: int
    delivered: int
    dead: int
    retried: int
    duplicates: int
    """Deliveries and counts beyond one for each job. There must be none."""
    seconds: float
    """Time from the start of the census to the last settlement."""
    jobs_per_second: float
    functions: int
    classes: int
    lines: int
    largest: dict[str, int]
    """Number of lines by path, of the files with the most lines."""
    dead_files: dict[str, dict[str, str]]
    """First line of the error by path, by consumer."""

    @property
    def adds_up(self) -> bool:
        return self.jobs == self.delivered + self.dead and not self.duplicates

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def as_text(self) -> Iterator[str]:
        for consumer, errors in self.dead_files.items():
            yield f"Dead at {consumer}:"
            yield from (f"  {path}\n    {error}" for path, error in errors.items())
        yield "Largest files that were counted:"
        yield from (f"  {lines:>9,} lines  {path}" for path, lines in self.largest.items())
        yield "Census:"
        yield f"  {self.functions:,} functions, {self.classes:,} classes, {self.lines:,} lines"
        yield "Jobs:"
        yield f"  {self.published:,} messages published, {self.jobs:,} jobs"
        yield f"  = {self.delivered:,} delivered + {self.dead:,} dead, {self.duplicates} done twice"
        yield f"  {self.retried:,} retries"
        yield f"  {self.seconds:.1f} seconds, {self.jobs_per_second:,.0f} jobs a second"


def summarise(run: Run) -> Summary:
    settled = runs.archived(run)
    delivered = settled.filter(state=State.DELIVERED)
    counts = counts_of(run)
    deliveries, jobs_delivered = _rows_and_jobs(delivered, "job_id")
    rows, messages_counted = _rows_and_jobs(counts, "message_id")
    last = settled.aggregate(at=Max("settled_at"))["at"]
    seconds = (last - run.started_at).total_seconds() if last else 0.0
    return Summary(
        published=Message.objects.filter(id__in=run.files.values("message_id")).count(),
        jobs=run.jobs,
        delivered=jobs_delivered,
        dead=runs.dead(run).count(),
        retried=_total(delivered, "retry_count") + _total(runs.dead(run), "retry_count"),
        duplicates=deliveries - jobs_delivered + rows - messages_counted,
        seconds=round(seconds, 3),
        jobs_per_second=round(run.jobs / seconds, 1) if seconds else 0.0,
        functions=_total(counts, "functions"),
        classes=_total(counts, "classes"),
        lines=_total(counts, "lines"),
        largest=_largest(run, counts),
        dead_files=_dead_files(run),
    )


def counts_of(run: Run) -> QuerySet[Count]:
    return Count.objects.filter(message_id__in=run.files.values("message_id"))


def paths_of(run: Run) -> dict[int, str]:
    """Return the paths of the files of a census, by the id of their message."""
    return dict(run.files.order_by("id").values_list("message_id", "path"))


def _rows_and_jobs(rows: QuerySet[Any], key: str) -> tuple[int, int]:
    numbers = rows.aggregate(rows=Number("*"), jobs=Number(key, distinct=True))
    return numbers["rows"], numbers["jobs"]


def _total(rows: QuerySet[Any], column: str) -> int:
    return rows.aggregate(total=Sum(column))["total"] or 0


def _largest(run: Run, counts: QuerySet[Count]) -> dict[str, int]:
    paths = paths_of(run)
    top = counts.order_by("-lines")[:LARGEST_SHOWN].values_list("message_id", "lines")
    return {paths[message_id]: lines for message_id, lines in top}


def _dead_files(run: Run) -> dict[str, dict[str, str]]:
    paths = paths_of(run)
    dead = runs.dead(run).order_by("consumer", "message_id").annotate(name=F("consumer__name"))
    errors: dict[str, dict[str, str]] = {}
    for name, message_id, error in dead.values_list("name", "message_id", "error"):
        errors.setdefault(name, {})[paths[message_id]] = (error or "").partition("\n")[0]
    return errors
