"""All metric families as data, from which recorder, collectors, docs and tests are made."""

from enum import StrEnum
from typing import Final, NamedTuple

from pulljobs import hooks


class Type(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Family(NamedTuple):
    """Metric family, as Prometheus has it."""

    name: str
    """Name in Prometheus, for a histogram without the suffixes."""
    type: Type
    labels: tuple[str, ...]
    meaning: str


Sample = tuple[str, tuple[str, ...], float]
"""Name of the family, values of its labels, value."""

CHANNEL: Final = ("channel",)
CONSUMER: Final = ("channel", "consumer")
SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
"""Upper bounds of the buckets, from a trivial handler to an hour."""

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
        "Jobs that these messages became: one for each consumer.",
    ),
    Family(
        "pulljobs_scheduled_held_back_total",
        Type.COUNTER,
        CHANNEL,
        "Refusals of scheduled messages that were due; each is retried after a minute.",
    ),
    Family("pulljobs_jobs_claimed_total", Type.COUNTER, CONSUMER, "Jobs that were claimed."),
    Family(
        "pulljobs_claims_limited_total",
        Type.COUNTER,
        (*CONSUMER, "reason"),
        "Claims that got fewer jobs than they asked for because of a limit: `max_in_flight`, "
        "`rate_limited`, `throttled` or `key_limited`.",
    ),
    Family(
        "pulljobs_limit_wait_seconds_total",
        Type.COUNTER,
        (*CONSUMER, "reason"),
        "Time for which claims were put off by a rate (`rate_limited`), a throttle "
        "(`throttled`) or rates and throttles of keys (`key_limited`), over all processes.",
    ),
    Family(
        "pulljobs_jobs_finished_total",
        Type.COUNTER,
        (*CONSUMER, "event", "state"),
        "Jobs that are no longer in flight, by the event (`deliver`, `reject`, `retry`, `release`, "
        "`suspend`, `expire`) and the new state.",
    ),
    Family(
        "pulljobs_leases_lost_total",
        Type.COUNTER,
        CONSUMER,
        "Jobs whose lease was lost before their holder settled them.",
    ),
    Family(
        "pulljobs_wait_seconds",
        Type.HISTOGRAM,
        CONSUMER,
        "Time from publish to first claim, by the database's clock, including a requested delay. "
        "The first claim after a release or a redrive counts again, with all the time since the "
        "publish: redriving earlier jobs shows in the percentiles.",
    ),
    Family(
        "pulljobs_run_seconds",
        Type.HISTOGRAM,
        CONSUMER,
        "Run time of handlers and push deliveries, whatever their outcome.",
    ),
    Family(
        "pulljobs_handler_failures_total",
        Type.COUNTER,
        (*CONSUMER, "kind"),
        "Failures of handlers: `raised`, `timed_out`, `silent` (a manual handler that chose no "
        "outcome) or `giving_up` (an `on_giving_up` hook raised).",
    ),
    Family(
        "pulljobs_outcomes_refused_total",
        Type.COUNTER,
        CONSUMER,
        "Outcomes that the database refused.",
    ),
    Family(
        "pulljobs_push_answers_total",
        Type.COUNTER,
        (*CONSUMER, "answer"),
        "Answers of push endpoints: the class of the status such as `2xx`, `timeout` or "
        "`unreachable`.",
    ),
    Family(
        "pulljobs_circuit_changes_total",
        Type.COUNTER,
        (*CONSUMER, "state"),
        "Changes of a consumer's circuit, by the new state.",
    ),
    Family(
        "pulljobs_loop_failures_total",
        Type.COUNTER,
        ("loop",),
        "Failed passes of a loop, at most one a second; they are retried.",
    ),
    Family(
        "pulljobs_jobs_left_behind_total",
        Type.COUNTER,
        (),
        "Jobs that a worker left in flight when it stopped; they return when their lease expires.",
    ),
)
"""Counters and histograms of events, which each process counts for itself."""

READ: Final = (
    Family(
        "queued_job_count",
        Type.GAUGE,
        CONSUMER,
        "QUEUED jobs. Where there are too many to count, this is the planner's estimate, for the "
        "first 200 such consumers.",
    ),
    Family(
        "dead_job_count",
        Type.GAUGE,
        CONSUMER,
        "DEAD jobs, counted up to 10,000.",
    ),
    Family(
        "pulljobs_jobs",
        Type.GAUGE,
        (*CONSUMER, "kind"),
        "Live jobs: `ready`, `delayed`, `blocked` (behind their key) or `in_flight`; each counted "
        "up to 10,000, or to less, but 200 at the least, where several consumers have so many.",
    ),
    Family(
        "pulljobs_oldest_ready_seconds",
        Type.GAUGE,
        CONSUMER,
        "Time since the oldest ready job became ready; 0: no job is ready.",
    ),
    Family("pulljobs_paused", Type.GAUGE, CONSUMER, "1 if the consumer or its channel is paused."),
    Family(
        "pulljobs_serving",
        Type.GAUGE,
        CONSUMER,
        "Worker processes that claim for it and long polls that wait for it; plus one while other "
        "holders (HTTP clients, Spark) have jobs of it.",
    ),
    Family(
        "pulljobs_circuit_level",
        Type.GAUGE,
        CONSUMER,
        "Highest level of its circuit in any worker; 0: closed everywhere.",
    ),
    Family(
        "pulljobs_nodes",
        Type.GAUGE,
        ("kind", "state"),
        "Processes by kind (`worker`, `api`, `spark`): `alive`, or `silent` (no heartbeat for "
        "three intervals and no regular stop); silent nodes are dropped after a day.",
    ),
    Family(
        "pulljobs_oldest_snapshot_seconds",
        Type.GAUGE,
        (),
        "Age of the oldest transaction that keeps dead rows from being cleaned up, as far as the "
        "role may see; 0: none.",
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
        "Days after today that have a partition, without a gap; -1: today has none.",
    ),
    Family(
        "pulljobs_table_rows",
        Type.GAUGE,
        ("table", "kind"),
        "Rows of the tables that change, `live` and `dead`, by PostgreSQL's statistics.",
    ),
    Family(
        "pulljobs_table_bytes",
        Type.GAUGE,
        ("table",),
        "Size of these tables with their indexes.",
    ),
    Family(
        "pulljobs_read_ok",
        Type.GAUGE,
        ("part",),
        "1 if that part of the gauges was read in time; 0 if its gauges are missing here.",
    ),
    Family(
        "pulljobs_read_seconds",
        Type.GAUGE,
        (),
        "Time that reading the gauges took. They are read again when they are 5 seconds old.",
    ),
)
"""Gauges from the database. Every scraped target reports the same values: do not sum them."""


def families_counted() -> tuple[Family, ...]:
    """Return the families of counters and histograms, those of `hooks.counters` last."""
    modules = map(hooks.load, hooks.counters.values())
    return (*COUNTED, *(family for module in modules for family in module.FAMILIES))


def families_read() -> tuple[Family, ...]:
    """Return the families of gauges, those of other apps (`hooks.gauges`) last."""
    modules = map(hooks.load, hooks.gauges.values())
    return (*READ, *(family for module in modules for family in module.FAMILIES))
