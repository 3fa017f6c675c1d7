"""Every family of metrics, as data: the recorder, the collector, the docs and the tests read it."""

from enum import StrEnum
from typing import Final, NamedTuple

from pulljobs import hooks


class Type(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Family(NamedTuple):
    """`name` is what Prometheus stores, but for the suffixes of a histogram."""

    name: str
    type: Type
    labels: tuple[str, ...]
    meaning: str


Sample = tuple[str, tuple[str, ...], float]
"""Name of the family, values of its labels, value."""

CHANNEL: Final = ("channel",)
PLACE: Final = ("channel", "consumer")
SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
"""Upper ends of the buckets: from a handler that does next to nothing to an hour."""

COUNTED: Final = (
    Family(
        "pulljobs_messages_published_total",
        Type.COUNTER,
        CHANNEL,
        "Messages that this process published.",
    ),
    Family(
        "pulljobs_jobs_published_total",
        Type.COUNTER,
        CHANNEL,
        "Jobs that were made of them: one for each consumer.",
    ),
    Family(
        "pulljobs_scheduled_held_back_total",
        Type.COUNTER,
        CHANNEL,
        "Refusals of scheduled messages whose time had come; each is tried again in a minute.",
    ),
    Family("pulljobs_jobs_claimed_total", Type.COUNTER, PLACE, "Jobs that were claimed."),
    Family(
        "pulljobs_jobs_finished_total",
        Type.COUNTER,
        (*PLACE, "event", "state"),
        "Jobs that ceased to be in flight, by what ended it (`deliver`, `reject`, `retry`, "
        "`release`, `expire`) and the state they went to.",
    ),
    Family(
        "pulljobs_leases_lost_total",
        Type.COUNTER,
        PLACE,
        "Jobs whose holder learnt that its lease was lost.",
    ),
    Family(
        "pulljobs_wait_seconds",
        Type.HISTOGRAM,
        PLACE,
        "From a publish to the first claim, by the database's clock. A delay that was asked for is "
        "in it; a job that was released untouched is claimed first again. So is one that was "
        "redriven, with all the time since its publish: a redrive of old jobs shows in its "
        "percentiles.",
    ),
    Family(
        "pulljobs_run_seconds",
        Type.HISTOGRAM,
        PLACE,
        "How long handlers and push deliveries ran, however they ended.",
    ),
    Family(
        "pulljobs_handler_failures_total",
        Type.COUNTER,
        (*PLACE, "kind"),
        "What went wrong in handlers: `raised`, `timed_out`, `silent` (a manual one that said "
        "nothing) or `giving_up` (an `on_giving_up` raised).",
    ),
    Family(
        "pulljobs_outcomes_refused_total",
        Type.COUNTER,
        PLACE,
        "Outcomes that the database would not take.",
    ),
    Family(
        "pulljobs_push_answers_total",
        Type.COUNTER,
        (*PLACE, "answer"),
        "What came of a POST to a push consumer: the class of its status such as `2xx`, `timeout` "
        "or `unreachable`.",
    ),
    Family(
        "pulljobs_circuit_changes_total",
        Type.COUNTER,
        (*PLACE, "state"),
        "Changes of a consumer's circuit, by the state it came to.",
    ),
    Family(
        "pulljobs_loop_failures_total",
        Type.COUNTER,
        ("loop",),
        "Passes of a loop that failed and are tried again; told once a second at the most.",
    ),
    Family(
        "pulljobs_jobs_left_behind_total",
        Type.COUNTER,
        (),
        "Jobs that still ran when a worker had to stop; they come back when their lease is over.",
    ),
)

READ: Final = (
    Family(
        "queued_job_count",
        Type.GAUGE,
        PLACE,
        "Jobs that are QUEUED; where there are too many to be counted, the planner's estimate, but "
        "of the first 200 such consumers only.",
    ),
    Family(
        "dead_job_count",
        Type.GAUGE,
        PLACE,
        "Jobs that are DEAD, counted up to 10,000.",
    ),
    Family(
        "pulljobs_jobs",
        Type.GAUGE,
        (*PLACE, "kind"),
        "Live jobs: `ready`, `delayed`, `parked` (behind their key) or `in_flight`; each counted "
        "up to 10,000, or to less, but 200 at the least, where several consumers have so many.",
    ),
    Family(
        "pulljobs_oldest_ready_seconds",
        Type.GAUGE,
        PLACE,
        "For how long the oldest job that is ready has been; 0: none is.",
    ),
    Family("pulljobs_paused", Type.GAUGE, PLACE, "1: the consumer or its channel is paused."),
    Family(
        "pulljobs_serving",
        Type.GAUGE,
        PLACE,
        "Worker processes that say they claim for it, and pulls over HTTP that wait for it; one "
        "more while others than workers (over HTTP, Spark) hold jobs of it.",
    ),
    Family(
        "pulljobs_circuit_level",
        Type.GAUGE,
        PLACE,
        "The highest level of its circuit in any worker; 0: closed in all.",
    ),
    Family(
        "pulljobs_nodes",
        Type.GAUGE,
        ("kind", "state"),
        "Processes by kind (`worker`, `api`, `spark`): `alive`, or `silent`, without a heartbeat "
        "for three intervals and without a word of goodbye; forgotten after a day.",
    ),
    Family(
        "pulljobs_oldest_snapshot_seconds",
        Type.GAUGE,
        (),
        "The age of the oldest transaction that keeps dead rows from being cleaned away, as far as "
        "the role may see; 0: none.",
    ),
    Family(
        "pulljobs_default_partition_rows",
        Type.GAUGE,
        ("table",),
        "Rows that found no partition for their day, counted up to 10,000.",
    ),
    Family(
        "pulljobs_partitions_ahead",
        Type.GAUGE,
        ("table",),
        "Days after today that have a partition already, without a gap; -1: not even today.",
    ),
    Family(
        "pulljobs_table_rows",
        Type.GAUGE,
        ("table", "kind"),
        "Rows of the tables that change, `live` and `dead`, as PostgreSQL counts along.",
    ),
    Family(
        "pulljobs_table_bytes",
        Type.GAUGE,
        ("table",),
        "Their size, with indexes.",
    ),
    Family(
        "pulljobs_read_ok",
        Type.GAUGE,
        ("part",),
        "1: that part of the gauges was read in time. 0: its gauges are missing from this answer.",
    ),
    Family(
        "pulljobs_read_seconds",
        Type.GAUGE,
        (),
        "How long it took to read the gauges. They are read anew when they are 5 seconds old.",
    ),
)
"""From the database: every target that is scraped tells the same, so don't sum over targets."""


def families_read() -> tuple[Family, ...]:
    """Return READ and the families of `hooks.gauges`."""
    modules = map(hooks.load, hooks.gauges.values())
    return (*READ, *(family for module in modules for family in module.FAMILIES))
