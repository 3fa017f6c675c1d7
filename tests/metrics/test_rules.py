"""Alert rules in Prometheus itself: each fires when it should, and none when all is well."""

import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from promql_parser import AggregateExpr, BinaryExpr, parse

from tests.guides import texts
from tests.metrics.promql import every
from tests.requirements import require

RULES = files("pulljobs.metrics") / "alerts.yml"
PLACE = 'channel="orders", consumer="billing"'
FINISHED = f"pulljobs_jobs_finished_total{{{PLACE}, "
READY = f'pulljobs_jobs{{{PLACE}, kind="ready"}}'
OLDEST, SERVING, PAUSED, FAILED, RUN = (
    f"pulljobs_{name}{{{PLACE}{more}}}"
    for name, more in {
        "oldest_ready_seconds": "",
        "serving": "",
        "paused": "",
        "handler_failures_total": ', kind="raised"',
        "run_seconds_count": "",
    }.items()
)
LOOP = 'pulljobs_loop_failures_total{loop="fetcher", job="w", instance="w:1"}'
OF_PLACE = {"channel": "orders", "consumer": "billing"}
REJECTED = FINISHED + 'event="reject", state="DEAD"}'
EXPIRED = FINISHED + 'event="expire", state="QUEUED"}'
FIRES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "PulljobsJobsWaitTooLong": ({OLDEST: "400x90", PAUSED: "0x90"}, OF_PLACE),
    "PulljobsNobodyServes": ({READY: "1x90", SERVING: "0x90"}, OF_PLACE),
    "PulljobsJobsDie": ({FINISHED + 'event="retry", state="DEAD"}': "0+1x90"}, OF_PLACE),
    "PulljobsDeadJobsLie": ({f"dead_job_count{{{PLACE}}}": "1500x90"}, OF_PLACE),
    "PulljobsHandlersFail": ({FAILED: "0+20x90", RUN: "0+100x90"}, OF_PLACE),
    "PulljobsCircuitOpen": ({f"pulljobs_circuit_level{{{PLACE}}}": "4x90"}, OF_PLACE),
    "PulljobsPushFails": (
        {
            f'pulljobs_push_answers_total{{{PLACE}, answer="2xx"}}': "0+10x90",
            f'pulljobs_push_answers_total{{{PLACE}, answer="timeout"}}': "0+20x90",
        },
        OF_PLACE,
    ),
    "PulljobsLeasesExpire": ({EXPIRED: "0+1x90"}, OF_PLACE),
    "PulljobsWorkerSilent": (
        {'pulljobs_nodes{kind="worker", state="silent"}': "1x90"},
        {"kind": "worker"},
    ),
    "PulljobsLoopsFail": (
        {LOOP: "0+30x90"},
        {"loop": "fetcher", "job": "w", "instance": "w:1"},
    ),
    "PulljobsOldSnapshot": ({"pulljobs_oldest_snapshot_seconds": "900x90"}, {}),
    "PulljobsPartitionsEnd": ({'pulljobs_partitions_ahead{table="t"}': "1x90"}, {"table": "t"}),
    "PulljobsRowsInDefaultPartition": (
        {'pulljobs_default_partition_rows{table="t"}': "3x90"},
        {"table": "t"},
    ),
    "PulljobsLakeLags": ({"pulljobs_lake_lag_seconds": "9000x90"}, {}),
    "PulljobsSchedulesLate": ({"pulljobs_schedule_late_seconds": "90x90"}, {}),
    "PulljobsSchedulesRefused": (
        {'pulljobs_schedule_refusals_total{channel="orders"}': "0+1x90"},
        {"channel": "orders"},
    ),
    "PulljobsRunsStranded": ({f"pulljobs_runs_stranded{{{PLACE}}}": "3x90"}, OF_PLACE),
    "PulljobsRunsOverdue": ({f"pulljobs_run_overdue_seconds{{{PLACE}}}": "400x90"}, OF_PLACE),
    "PulljobsGaugesUnread": (
        {'pulljobs_read_ok{part="lake", instance="w:1"}': "0x90"},
        {"part": "lake"},
    ),
}
ALSO: list[tuple[str, dict[str, str]]] = [
    # A series begins above 0 where the first job of its kind ends between two scrapes.
    ("PulljobsJobsDie", {REJECTED: "_x70 3x20"}),
    ("PulljobsLeasesExpire", {EXPIRED: "_x70 1x20"}),
    # It begins above 0 again half an hour after a restart, since its target keeps its name.
    ("PulljobsJobsDie", {REJECTED: "5x40 stale _x35 1x20"}),
    ("PulljobsLeasesExpire", {EXPIRED: "5x40 stale _x35 1x20"}),
    # A loop waits for 30 s before it fails, or a child slot pauses for as long.
    ("PulljobsLoopsFail", {LOOP: "0+2x90"}),
]
"""Pairs of an alert and further series with which it fires."""
WELL = {
    OLDEST: "400x90",
    READY: "1x90",
    SERVING: "0x90",
    PAUSED: "1x90",
    FAILED: "0+1x90",
    RUN: "0+100x90",
    FINISHED + 'event="deliver", state="DELIVERED"}': "0+100x90",
    LOOP: "0x68 60+60x3 240x20",
    REJECTED: "3x63 stale _x3 3x23",
    f"dead_job_count{{{PLACE}}}": "10x90",
    f"pulljobs_circuit_level{{{PLACE}}}": "1x90",
    f'pulljobs_push_answers_total{{{PLACE}, answer="2xx"}}': "0+10x90",
    'pulljobs_nodes{kind="worker", state="alive"}': "2x90",
    'pulljobs_nodes{kind="worker", state="silent"}': "0x90",
    "pulljobs_oldest_snapshot_seconds": "5x90",
    'pulljobs_partitions_ahead{table="t"}': "7x90",
    'pulljobs_default_partition_rows{table="t"}': "0x90",
    "pulljobs_lake_lag_seconds": "600x90",
    "pulljobs_schedule_late_seconds": "2x90",
    'pulljobs_schedule_refusals_total{channel="orders"}': "0x78 1x12",
    f"pulljobs_runs_stranded{{{PLACE}}}": "0x78 2x12",
    f"pulljobs_run_overdue_seconds{{{PLACE}}}": "20x90",
    'pulljobs_read_ok{part="lake", instance="w:1"}': "1x90",
}
"""Series of every kind with which no alert fires.

Jobs wait for the end of a pause. A quarter of an hour ago scrapes failed for some minutes, and the
database failed for four minutes after that.
"""


def promtool(*words: str) -> None:
    command = [str(require("promtool")), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_them() -> None:
    """`promtool check rules` accepts the file of alert rules."""
    promtool("check", "rules", str(RULES))


def test_each_fires_when_it_should_and_none_when_all_is_well(tmp_path: Path) -> None:
    rules = yaml.safe_load(RULES.read_text("utf-8"))
    severity = {}
    for rule in rules["groups"][0]["rules"]:
        del rule["annotations"]  # promtool would expect their text in every case.
        severity[rule["alert"]] = rule["labels"]["severity"]
    assert FIRES.keys() == severity.keys()
    firing = [*((name, series) for name, (series, _labels) in FIRES.items()), *ALSO]
    cases = [
        _case(series, {name: FIRES[name][1] | {"severity": severity[name]}})
        for name, series in firing
    ]
    tests = {"rule_files": ["rules.yml"], "tests": [*cases, _case(WELL, dict.fromkeys(FIRES))]}
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rules))
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(tests))
    promtool("test", "rules", str(tmp_path / "tests.yml"))


def test_two_databases_are_kept_apart_as_the_guide_describes(tmp_path: Path) -> None:
    [command] = texts("docs/guides/metrics.md", "sh")
    (tmp_path / "pulljobs.yml").write_text(RULES.read_text("utf-8"))
    subprocess.run(command, shell=True, check=True, cwd=tmp_path, timeout=60)
    made = tmp_path / command.split()[-1]
    promtool("check", "rules", str(made))
    for rule in yaml.safe_load(made.read_text("utf-8"))["groups"][0]["rules"]:
        for expr in every(parse(rule["expr"])):
            if isinstance(expr, AggregateExpr):
                assert expr.modifier, rule["alert"]
                assert "database" in expr.modifier.labels, rule["alert"]
            if isinstance(expr, BinaryExpr) and expr.modifier and expr.modifier.matching:
                assert "database" in expr.modifier.matching.labels, rule["alert"]


def _case(series: dict[str, str], fires: dict[str, Any]) -> dict[str, Any]:
    """Return a test case of promtool: series with a value each minute, and labels of alerts.

    `fires` has the labels that each alert must have after 80 minutes, or None if it must not fire.
    """
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [
            {
                "eval_time": "80m",
                "alertname": name,
                "exp_alerts": [{"exp_labels": labels}] if labels is not None else [],
            }
            for name, labels in fires.items()
        ],
    }
