"""Registries through which an app such as `pulljobs.lake` extends the core.

The app fills them in its `AppConfig.ready()`. The core reads them and never imports the app.

    app_labels          apps whose tables belong to PULLJOBS['DATABASE']
    subcommands         verbs of `manage.py pulljobs`
    history_keepers     copies that must exist before a day of history is dropped
    ranges              ranges of the dashboard's charts
    dashboard_sections  sections of the dashboard
    gauges              metrics read from the database
    counters            metrics counted from telemetry events
    api_routes          routes of the HTTP API
    api_operations      descriptions of these routes for the OpenAPI document
    api_scopes          names of these routes, by which throttles are set
    roles               roles of `manage.py pulljobs grants`
    statements          statements that replace those of the core
    worker_loops        loops of every worker process
    worker_endings      functions that a worker process calls after its last outcome
    app_tables          privileges of the role `app` on tables of other apps
    forgetters          functions that delete old rows
    doctor_checks       checks of `manage.py pulljobs doctor`
    explainers          reasons of `manage.py pulljobs explain` for which a job waits
    batch_listeners     functions that look at batches whose members ended
    drain_steps         functions that `pulljobs.testing.drain` calls in place of loops
    drain_jumps         functions by which `pulljobs.testing.drain` lets time pass
    verifiers           checks of `manage.py pulljobs verify`
    test_tools          functions of `pulljobs.testing`
    kill_listeners      functions that learn of jobs that operators killed
    job_links           links on the pages of jobs
    node_reports        parts of the report that a worker writes with its heartbeat

Strings are dotted names that `load` imports on first use, so a worker loads no pages and a page
loads no commands. Statements of SQL have a registry of their own, `engine.sql.add_package`,
because Spark's executors use them without Django.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pkgutil import resolve_name
from typing import Any, Final, LiteralString, Protocol


class HistoryKeeper(Protocol):
    """A copy of history outside PostgreSQL."""

    missing: str
    """Reason, for people, why a day stays that this keeper does not have."""

    def is_active(self) -> bool:
        """Return True if days may be dropped only after this keeper has a copy of them."""

    def find_copy(self, using: str, table: str, day: date, age: timedelta) -> int | None:
        """Return the transaction number below which the copy of a partition is complete.

        Return None if there is no complete copy, or if the day was restored within `age`.
        """

    def record_drop(self, using: str, table: str, day: date) -> None:
        """Record that the partition was dropped."""


class WorkerLoop(Protocol):
    """Loop that runs in every worker process, in a thread of its own."""

    @property
    def wake_channel(self) -> str:
        """PostgreSQL channel whose notifications wake the loop."""

    def wake(self) -> None:
        """Note that the next pass has to look for work. Any thread may call this."""

    def tick(self) -> float:
        """Do one pass and return the seconds to wait before the next."""


@dataclass(frozen=True, slots=True)
class DatabaseRole:
    """Privileges of a role beyond those of `app`."""

    meaning: str
    tables: Mapping[str, LiteralString]
    """Privileges by table. Other roles than `publish` may read these tables."""
    creates_tables: bool = False


@dataclass(frozen=True, slots=True)
class VerifiedPart:
    """Result of a verifier: how many rows it looked at, and those that break an invariant."""

    looked_at: int
    broken: Mapping[str, Sequence[str]]
    """Rows as text by the name of the invariant."""
    invariants: Mapping[str, str]
    """Meanings of the invariants by their names."""


app_labels: Final[set[str]] = {"pulljobs"}
subcommands: Final[dict[str, str]] = {}
"""Modules by the name of the verb, as `management.subcommands` uses them."""
history_keepers: Final[list[str]] = []
"""Objects that implement `HistoryKeeper`."""
ranges: Final[list[str]] = []
"""Sequences of `admin.dashboard.ranges.Range`."""
dashboard_sections: Final[list[str]] = []
"""Functions `(at, links)` that return an `admin.dashboard.sections.Section`, or None."""
gauges: Final[dict[str, str]] = {}
"""Modules with FAMILIES and `read_samples(using)`, by the value of `pulljobs_read_ok`'s label."""
counters: Final[dict[str, str]] = {}
"""Modules with FAMILIES that register their events at `metrics.recorder.record`, by app."""
api_routes: Final[dict[str, str]] = {}
"""Modules with `urlpatterns`, by the tag of their operations. Refusals are problems (RFC 9457)."""
api_operations: Final[list[str]] = []
"""Mappings of `api.openapi.operation.ApiOperation` by route and method."""
api_scopes: Final[set[str]] = set()
roles: Final[dict[str, DatabaseRole]] = {}
worker_loops: Final[dict[str, str]] = {}
"""Classes that implement `WorkerLoop`, by the name of the loop."""
worker_endings: Final[list[str]] = []
"""Functions `(using)` that do the rest of a loop before the process ends."""
app_tables: Final[dict[str, LiteralString]] = {}
"""Privileges by table."""
forgetters: Final[list[str]] = []
"""Functions `(using, age)` that delete a batch of rows of that age and return their number."""
doctor_checks: Final[list[str]] = []
"""Functions that yield `diagnosis.database_checks.Finding`."""
batch_listeners: Final[list[str]] = []
"""Functions `(using, batch_ids)`, called after the commit that changed counts of these batches."""
loop_wakers: Final[dict[str, Callable[[], None]]] = {}
"""Functions that wake the loops of `worker_loops` in this process, by the name of the loop.

Other processes than workers have none. Any thread may call them.
"""
drain_steps: Final[list[str]] = []
"""Functions `(using)` that do in a test what a loop does, and return True if they did anything."""
drain_jumps: Final[list[str]] = []
"""Functions `(jobs)` that let the time pass until these jobs of a test, a queryset, are due.

They return the ids of those that wait for something else than time.
"""
verifiers: Final[dict[str, str]] = {}
"""Functions without arguments that only read and return a `VerifiedPart`, by what they look at."""
explainers: Final[list[str]] = []
"""Functions `(job)` that yield `diagnosis.explain.WaitReason` for a job that is due later."""
test_tools: Final[dict[str, str]] = {}
"""Functions by the name under which `pulljobs.testing` has them."""
kill_listeners: Final[list[str]] = []
"""Functions `(job_ids)`, called after an operator has killed jobs."""
job_links: Final[list[str]] = []
"""Functions `(request, row)` that yield a label and a link for a live or archived job."""
node_reports: Final[dict[str, str]] = {}
"""Functions without arguments that return JSON, by the name of the part. They are called once."""
statements: Final[dict[str, str]] = {}
"""Names of statements that take the same parameters, by the name of the core's."""


def add(names: list[str], name: str) -> None:
    """Add a name once: Django runs `ready()` again when INSTALLED_APPS changes, as in tests."""
    if name not in names:
        names.append(name)


def load(name: str) -> Any:
    """Return the module or object of a dotted name. `module:object` names an object."""
    return resolve_name(name)
