"""The benchmark of peers measures, keeps its figures, and says which peer could not run and why."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.peers import chart, page, session
from benchmarks.peers.adapters import common
from benchmarks.peers.catalog import PEERS
from benchmarks.peers.load import OfferedLoad, compare_loads
from benchmarks.peers.measures import Sizes
from benchmarks.peers.peer import Peer, Runtime
from benchmarks.peers.processes import JobStart
from benchmarks.peers.record import Record
from example_project.state import BASE_DIR
from tests.benchmarks.runs import run

TINY = [
    "--jobs", "400", "--rounds", "1", "--processes", "1", "--handlers", "noop", "--rates", "500",
    "--latency-seconds", "0.5", "--publish-seconds", "0", "--held-seconds", "0",
]  # fmt: skip
HELD = [
    "--jobs", "400", "--rounds", "0", "--held-seconds", "3", "--held-rate", "80",
]  # fmt: skip
DEADLINE = 60
"""Seconds that every latency is below. A time of the clock, reported by mistake, would be above."""
SIZES = Sizes(
    jobs=1, publish_seconds=0, drain_seconds=0, latency_seconds=0,
    held_seconds=0, held_rate=1, held_jobs=1, held_together=1,
)  # fmt: skip
WHERE = {"at": "2026-11-21", "machine": {"cores": "4", "load at start": "0.1"}}
MISSING = Peer(
    name="missing",
    runtime=Runtime.PYTHON,
    packages=("/no/such/package",),
    adapter="django_q2_peer.py",
    left="SELECT 0",
    settings="",
    history="",
    holds="",
    fan_out="",
    acks="",
    retries="",
)


@pytest.mark.slow
@pytest.mark.processes
def test_pulljobs_is_measured(tmp_path: Path, state: Path) -> None:
    """The page and the chart have the rates and latencies of jobs that ran."""
    record = tmp_path / "record.json"
    run_harness(state, "--json", str(record), "--output", str(tmp_path), *TINY)
    content = json.loads(record.read_text())
    figures = content["peers"]["pulljobs"]["figures"]
    assert figures["noop x 1"][0]["rate"] > 0
    assert figures["fill"][0]["wal"] > 0
    [latency] = figures["latency at 500"]
    assert 0 < latency["p50"] <= latency["p99"] < DEADLINE
    assert latency["started"] == pytest.approx(1, abs=0.05)
    page = (tmp_path / "peers.md").read_text()
    assert "| pulljobs |" in page
    assert "measured: held" not in page, "the load was not measured"
    ElementTree.fromstring((tmp_path / "peers.svg").read_text())


@pytest.mark.slow
@pytest.mark.processes
def test_load_under_a_held_snapshot_is_measured_alone(tmp_path: Path, state: Path) -> None:
    """A load and a drain are measured, and only the table `held` of the page is rewritten."""
    record = tmp_path / "record.json"
    written = "<!-- measured: rates -->\nold\n<!-- end -->\n"
    (tmp_path / "peers.md").write_text(f"{written}<!-- measured: held -->\nold\n<!-- end -->\n")
    run_harness(state, "--json", str(record), "--output", str(tmp_path), *HELD)
    figures = json.loads(record.read_text())["peers"]["pulljobs"]["figures"]
    [load], [drain] = figures["while held"], figures["held"]
    # A machine that others use lets publishers fall behind.
    assert 0.5 < load["published_share"] <= 1
    assert 0.9 < load["started"] <= 1
    assert 0 < load["dequeued_share"] <= 1
    for when in ("without", "first", "last"):
        assert 0 < load[f"p50_{when}"] <= load[f"p99_{when}"] < DEADLINE
    assert load["p99_growth"] == load["p99_last"] / load["p99_without"]
    assert drain["rate"] > 0
    page = (tmp_path / "peers.md").read_text()
    assert page.startswith(written)
    assert re.search(r"^\| pulljobs \| 80 \| 3 \| \d+\.\d % \|", page, re.MULTILINE)


def run_harness(state: Path, *options: str) -> None:
    done = run(state, "peers", "--peers", "pulljobs", *options)
    assert done.returncode == 0, done.stderr


def test_peer_that_cannot_be_installed_is_listed_with_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULLJOBS_STATE_DIR", str(tmp_path))
    record = Record(tmp_path / "record.json", resume=False)
    assert session.prepare_peers([MISSING], record, SIZES) == []
    listed = page.errors(record.content)
    assert "missing: not run" in listed
    assert "/no/such/package" in listed


def test_measure_that_fails_is_listed_and_tried_again_by_a_resumed_run(tmp_path: Path) -> None:
    record = Record(tmp_path / "record.json", resume=False)
    record.prepared("pgqueuer", {})
    record.add("pgqueuer", "noop x 1", {"rate": 1.0})
    record.give_up("pgqueuer", "noop x 4", "no connection left")
    again = Record(tmp_path / "record.json", resume=True)
    assert again.rounds("pgqueuer", "noop x 1") == 1
    assert again.rounds("pgqueuer", "noop x 4") == 0
    assert "pgqueuer, noop x 4: no connection left" in page.errors(again.content)
    assert again.hopeless("pgqueuer", "noop x 4")
    again.prepared("pgqueuer", {})
    assert not again.hopeless("pgqueuer", "noop x 4")


def test_page_and_chart_show_the_median_between_the_least_and_the_most(tmp_path: Path) -> None:
    record = Record(tmp_path / "record.json", resume=False)
    record.prepared("pgqueuer", {"pgqueuer": "1"})
    for rate in (900.0, 12_340.0, 20_000.0):
        record.add("pgqueuer", "noop x 1", {"rate": rate})
    assert "| **12,300** (900 to 20,000) |" in page.rates(record.content)
    picture = ElementTree.fromstring(chart.draw_svg(record.content))
    assert [title.text for title in picture.iter("{http://www.w3.org/2000/svg}title")][1:] == [
        "pgqueuer, 1 process: 1.234e+04"
    ]


@pytest.mark.parametrize("bursts", [common._Pace.each, common._Pace.many])
def test_publisher_that_cannot_keep_up_ends_in_time_with_fewer(
    bursts: Callable[[common._Pace], Iterator[object]],
) -> None:
    for rate, seconds, least, most in ((1e9, 0.05, 1, 5e7 - 1), (10.0, 0.3, 3, 3)):
        pace = common._Pace(rate, seconds)
        for _published in bursts(pace):
            pass
        assert least <= pace.published <= most


def test_latencies_under_load_are_those_of_its_first_and_last_tenth() -> None:
    """The 7 s that jobs wait in the middle count neither for the first nor for the last tenth."""
    without = stretch([JobStart(0.0, 0.1), JobStart(1.0, 1.1)])
    waits = [0.1] * 5 + [7.0] * 40 + [0.3] * 5
    during = stretch([JobStart(100 + at / 5, 100 + at / 5 + wait) for at, wait in enumerate(waits)])
    figures = compare_loads(during, without)
    for name, waited in (("without", 0.1), ("first", 0.1), ("last", 0.3)):
        assert figures[f"p50_{name}"] == pytest.approx(waited)
        assert figures[f"p99_{name}"] == pytest.approx(waited)
    assert figures["p99_growth"] == pytest.approx(3)
    assert (figures["published_share"], figures["dequeued_share"]) == (0.9, 0.8)


def stretch(starts: list[JobStart]) -> OfferedLoad:
    return OfferedLoad(10.0, 0.9, 0.8, 0.98, starts)


def test_page_names_peers_that_started_nothing_and_marks_late_publishers(tmp_path: Path) -> None:
    record = Record(tmp_path / "record.json", resume=False)
    record.about(**WHERE)
    record.prepared("pgqueuer", {})
    early = stretch([JobStart(0.0, 0.1), JobStart(0.1, 0.2)])
    asked = {"offered": 800.0, "seconds": 10.0}
    record.put("pgqueuer", "while held", [asked | compare_loads(early, early)])
    record.put("pgqueuer", "held", [{"rate": 1200.0}])
    row = "800 | 10 | 90.0 % | 80.0 % | 100 | 100 | none started\\* |  | **1,200** |"
    assert f"| pgqueuer | {row}" in page.held(record.content)
    record.put("pgqueuer", "while held", [asked | compare_loads(stretch([]), early)])
    assert "| 100 | none started | none started\\* |  | **1,200** |" in page.held(record.content)


def test_record_without_a_load_has_its_drains(tmp_path: Path) -> None:
    """A load without figures is "not measured" in the table, which still has the drain's rate."""
    record = Record(tmp_path / "record.json", resume=False)
    record.about(**WHERE, sizes={"held_rate": 200.0, "held_seconds": 180.0})
    record.prepared("pgqueuer", {})
    record.add("pgqueuer", "held", {"rate": 6000.0})
    resumed = Record(tmp_path / "record.json", resume=True)
    row = "| pgqueuer | 200 | 180 |" + " not measured |" * 6 + " **6,000** |"
    assert row in page.held(resumed.content)
    resumed.give_up("pgqueuer", "while held", "no connection left")
    assert "| pgqueuer | 200 | 180 | failed |" in page.held(resumed.content)


def test_page_keeps_the_text_around_the_marks(tmp_path: Path) -> None:
    record = Record(tmp_path / "record.json", resume=False)
    record.prepared("pgqueuer", {"pgqueuer": "1"})
    text = "# Ours\n<!-- measured: settings -->\nold\n<!-- end -->\nThe end.\n"
    filled = page.fill_sections(text, record.content, ["settings"])
    assert filled.startswith("# Ours\n<!-- measured: settings -->\n")
    assert "pgqueuer 1" in filled
    assert "old" not in filled
    assert filled.endswith("<!-- end -->\nThe end.\n")
    assert page.fill_sections(text, record.content, ["held"]) == text


def test_every_peer_has_an_adapter_and_a_description_of_its_guarantees() -> None:
    adapters = BASE_DIR / "benchmarks" / "peers" / "adapters"
    for peer in PEERS:
        assert (adapters / peer.adapter).exists(), peer.name
        assert all((peer.history, peer.holds, peer.acks, peer.retries, peer.settings)), peer.name
    assert len({peer.name for peer in PEERS}) == len(PEERS)
