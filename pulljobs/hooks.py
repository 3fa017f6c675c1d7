"""Registries through which an app such as `pulljobs.lake` extends the core.

The app fills them in its `AppConfig.ready()`. The core reads them and never imports the app.

    app_labels          apps whose tables belong to PULLJOBS['DATABASE']
    subcommands         verbs of `manage.py pulljobs`
    history_keepers     copies that must exist before a day of history is dropped
    ranges              time ranges of the dashboard's charts
    dashboard_sections  sections of the dashboard
    gauges              metrics read from the database
    counters            metrics counted from telemetry events
    api_routes          routes of the HTTP API
    api_operations      descriptions of these routes for the OpenAPI document
    api_scopes          names of these routes, the keys of PULLJOBS['THROTTLES'] for them
    roles               roles of `manage.py pulljobs grants`
    statements          statements by which `verify` replaces those of the core
    worker_loops        loops of every worker process
    worker_endings      functions that a worker process calls after it wrote its last outcome
    app_tables          privileges of the role `app` on tables of other apps
    forgetters          functions that delete old rows
    doctor_checks       checks of `manage.py pulljobs doctor`
    explainers          reasons of `manage.py pulljobs explain` for which a job waits
    batch_listeners     functions that look at batches whose members ended
    drain_steps         functions that `pulljobs.testing.drain` calls in place of loops
    drain_jumps         functions by which `pulljobs.testing.drain` ends the waits of jobs
    verifiers           checks of `manage.py pulljobs verify`
    test_tools          functions of `pulljobs.testing`
    kill_listeners      functions that learn of jobs that operators killed
    redrive_listeners   context managers around a redrive, that redrive other jobs first
    job_links           links on the pages of jobs
    node_reports        parts of the report that a worker writes with its heartbeat

Strings are dotted names that `load` imports on first use, so a worker loads no pages and a page
loads no commands. Statements of SQL have a registry of their own, `engine.sql.add_package`,
because Spark's executors use them without Django.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pkgutil import resolve_name
from typing import Any, Final, LiteralString, Protocol


class HistoryKeeper(Protocol):
    """Copy of messages and settlements outside PostgreSQL, such as a lake."""

    missing: str
    """Sentence for operators that says why a day without a copy is not dropped."""

    def is_active(self) -> bool:
        """Return True if days may be dropped only after this keeper has a copy of them."""

    def find_copy(self, using: str, table: str, day: date, age: timedelta) -> int | None:
        """Return the transaction number below which the copy of a partition is complete.

        The partition is that of `day` of `table`. Return None if there is no complete copy, or if
        its rows were restored to PostgreSQL less than `age` ago.
        """

    def record_drop(self, using: str, table: str, day: date) -> None:
        """Record that the partition of `day` of `table` was dropped."""


class WorkerLoop(Protocol):
    """Loop that runs in every worker process, in a thread of its own."""

    @property
    def wake_channel(self) -> str:
        """PostgreSQL channel whose notifications wake the loop."""

    def wake(self) -> None:
        """Make the next pass look for work. Any thread may call this.

        The worker then also ends the wait before that pass.
        """

    def tick(self) -> float:
        """Do one pass and return the seconds to wait before the next."""


@dataclass(frozen=True, slots=True)
class DatabaseRole:
    """Database role of `manage.py pulljobs grants` that may do more than the role `app`."""

    meaning: str
    """Purpose of the role, as the help of the command shows it."""
    tables: Mapping[str, LiteralString]
    """Privileges by table. Other roles than `publish` may read these tables."""
    creates_tables: bool = False


@dataclass(frozen=True, slots=True)
class VerifiedPart:
    """Result of a check of `verify`: the number of rows, and those that break an invariant."""

    looked_at: int
    broken: Mapping[str, Sequence[str]]
    """Rows as text by the name of the invariant."""
    invariants: Mapping[str, str]
    """Meanings of the invariants by their names."""


app_labels: Final[set[str]] = {"pulljobs"}
subcommands: Final[dict[str, str]] = {}
"""Modules that define a subcommand, by its name. `management.subcommands` has their interface."""
history_keepers: Final[list[str]] = []
"""Objects that implement `HistoryKeeper`."""
ranges: Final[list[str]] = []
"""Sequences of `admin.dashboard.ranges.Range`."""
dashboard_sections: Final[list[str]] = []
"""Functions `(at, links)` that return an `admin.dashboard.sections.Section`, or None."""
gauges: Final[dict[str, str]] = {}
"""Modules with FAMILIES and `read_samples(using)`, by their label of metric `pulljobs_read_ok`."""
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
"""Functions `(using)` that do what is left of the work of a loop before the process ends."""
app_tables: Final[dict[str, LiteralString]] = {}
"""Privileges, such as `SELECT, INSERT`, by table."""
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
fetch_wakers: Final[list[Callable[[Collection[int]], object]]] = []
"""Functions `(consumer_ids)` that let this worker process look for jobs of these consumers now.

Other processes than workers have none. Any thread may call them.
"""
drain_steps: Final[list[str]] = []
"""Functions `(using)` that do in a test what a loop does, and return True if they did anything."""
drain_jumps: Final[list[str]] = []
"""Functions `(jobs)` that end, in a test, what these jobs of a queryset wait for until a time.

They return the ids of the jobs that wait for something else. The others are then made due.
"""
verifiers: Final[dict[str, str]] = {}
"""Functions without arguments that only read and return a `VerifiedPart`, by the checked rows."""
explainers: Final[list[str]] = []
"""Functions `(job)` that yield `diagnosis.explain.WaitReason` for a job that is due later."""
test_tools: Final[dict[str, str]] = {}
"""Functions by the name under which `pulljobs.testing` offers them."""
kill_listeners: Final[list[str]] = []
"""Functions `(job_ids)`, called after an operator has killed jobs, but not after a purge."""
redrive_listeners: Final[list[str]] = []
"""Context managers `(job_ids)` in which an operator redrives those of the jobs that are DEAD."""
job_links: Final[list[str]] = []
"""Functions `(request, row)` that yield a label and a link for a live or archived job."""
node_reports: Final[dict[str, str]] = {}
"""Functions without arguments that return JSON, by its key in the report of a node.

A worker process calls them once, when it starts.
"""
statements: Final[dict[str, str]] = {}
"""Names of statements for `verify`, by the name of the core's with the same parameters."""


def add(names: list[str], name: str) -> None:
    """Add a name to a list of this module, unless the list has it.

    Django runs `ready()` again when INSTALLED_APPS changes, as in tests.
    """
    if name not in names:
        names.append(name)


def load(name: str) -> Any:
    """Return the module or object of a dotted name. `module:object` names an object."""
    return resolve_name(name)
