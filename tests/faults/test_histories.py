"""Histories of runs of faults are written to files and read again."""

from pathlib import Path

from benchmarks.faults.history import CLAIMED, SENT, Entry, HistoryWriter, process_of, read_history


def test_records_are_read_in_the_order_of_time(tmp_path: Path) -> None:
    first_pen, second_pen = HistoryWriter(tmp_path, "one"), HistoryWriter(tmp_path, "other")
    first_pen.write(CLAIMED, [Entry(1, "a", "-", 2, 3), Entry(2, "a")], since=0.5, seconds=30)
    second_pen.write(SENT, [Entry(1, "a", "deliver")])
    first, second, third = read_history(tmp_path)
    assert first[:4] == (CLAIMED, 1, "a", process_of(next(tmp_path.iterdir())))
    assert (first.since, first.seconds, first.retry_count, first.deliveries) == (0.5, 30, 2, 3)
    assert second[:3] == (CLAIMED, 2, "a")
    assert third.outcome == "deliver"
    assert first.at == second.at <= third.since == third.at


def test_a_killed_writer_spoils_only_its_last_record(tmp_path: Path) -> None:
    HistoryWriter(tmp_path, "one").write(SENT, [Entry(1, "a", "deliver")])
    [file] = tmp_path.iterdir()
    with file.open("a") as opened:
        opened.write('["sent", 1, 1')
    assert [line.job for line in read_history(tmp_path)] == [1]
