"""Stream of a consumer's jobs: claims of batches, also ahead of time, acks, releases and counts."""

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any, Final

from pulljobs import ids
from pulljobs.engine.claiming.claimer import Claimer
from pulljobs.engine.claiming.rows import LIMITS, Claimed, Terms
from pulljobs.engine.encodings import array
from pulljobs.engine.low_water_marks import Entry
from pulljobs.engine.sql import Row
from pulljobs.engine.telemetry import JobsClaimed, LeasesLost, emit
from pulljobs.states import Event
from pyspark_pulljobs import batches, claiming, ownership, settling
from pyspark_pulljobs.background import BackgroundCall
from pyspark_pulljobs.batches import BatchSlice
from pyspark_pulljobs.claiming import StreamBatch
from pyspark_pulljobs.database_session import Session
from pyspark_pulljobs.link import Link, Links
from pyspark_pulljobs.stream_options import StreamOptions

VIA: Final = "spark"
KEPT_BATCHES: Final = 100
"""Number of acked batches that stay in the database."""
CLAIM_ATTEMPTS: Final = 5
"""Attempts to claim locked or limited jobs, before a query with AvailableNow ends without them."""
RETRY_SECONDS: Final = 0.2
CLOCK_TOLERANCE: Final = timedelta(milliseconds=2)
"""Tolerance for ids, whose time is rounded to milliseconds."""
AHEAD_SECONDS: Final = 5.0
"""Longest time of a batch after which the next one is claimed in advance.

Jobs that were claimed in advance wait under a lease while the batch runs.
"""

BACKLOG_SECONDS: Final = 10.0
"""Shortest time between two counts of the backlog, which each cost as much as a small claim."""
MOST_COUNTED: Final = 100_000
"""Number of ready jobs at which a count of the backlog stops."""

Acked = list[tuple[int, int]]
"""Numbers of delivered and of lost jobs, one pair for each acked batch."""


class Stream:
    """Stream of one owner, for use in one thread. It connects to the database on first use.

    Batches are numbered from 1, and the argument `seq` is such a number. Calls repeat their work
    after an outage of the database, as `Links.run` describes, and raise StreamTaken if another
    process is the owner.
    """

    def __init__(self, options: StreamOptions) -> None:
        self._options = options
        self._report: dict[str, Any] = {
            "stream": options.stream,
            "consumer": f"{options.channel}/{options.consumer}",
        }
        self._progress = dict.fromkeys(("backlog", "claimed", "redelivered", "acked", "lost"), 0)
        self._links = Links(options, self._report)
        self._link: Link | None = None
        self._claimer = Claimer(0)
        self._owned_batches: dict[int, StreamBatch] = {}
        """Batches that this process claimed or took over, by number."""
        self._acked = 0
        pool = ThreadPoolExecutor(1, "background")
        self._acking: BackgroundCall[Acked] = BackgroundCall(pool)
        self._claiming_ahead: BackgroundCall[tuple[Claimed, StreamBatch | None]] = BackgroundCall(
            pool
        )
        self._planned_at = -AHEAD_SECONDS
        self._counted_at = -BACKLOG_SECONDS
        self._cutoff: datetime | None = None
        """Time until which a job must have been available to be claimed, or None for no limit."""

    @property
    def progress(self) -> dict[str, int]:
        """Numbers of jobs that this process has claimed, acked and lost so far, and the backlog.

        `redelivered` counts jobs that had been claimed before, `lost` those whose lease was lost
        before the ack. The backlog is the number of ready jobs at the last count, up to 100,000.
        """
        return dict(self._progress)

    def read_acked(self) -> int:
        """Read the number of the last acked batch, which is 0 before the first."""
        params = {"stream": self._options.stream}
        [row] = self._links.run(lambda link: link.session.run("stream_end", params))
        return int(row.seq)

    def stop_at_available_jobs(self) -> None:
        """Claim from now on only jobs that are available now, for the trigger AvailableNow.

        If keys are exclusive, jobs that exist now are also claimed once they become available.
        """
        params = {"stream": self._options.stream}
        [row] = self._links.run(lambda link: link.session.run("stream_owner", params))
        self._cutoff = row.now

    def ack_and_claim(self, seq: int, rows: int) -> int:
        """Ack the batches up to `seq`, and claim the next batch of at most `rows` jobs.

        Return the number of the next batch, or `seq` if there are no jobs. The ack may continue in
        the background. If there are no jobs, the call waits for at most a second, and the ack is
        complete when it returns.
        """
        return self._links.run(lambda link: self._ack_and_claim(link, seq, rows))

    def ack(self, seq: int) -> None:
        """Ack all batches up to `seq`, which delivers those of their jobs that are still held."""

        def work(link: Link) -> None:
            self._start_ack(link, seq)
            self._end_ack(link)

        if seq > self._acked:
            self._links.run(work)

    def ack_soon(self, seq: int) -> None:
        """Ack all batches up to `seq`, in the background unless the next claim depends on that."""
        if seq > max(self._acked, self._acking.seq):
            self._links.run(lambda link: self._start_ack(link, seq))

    def slices(self, after: int, until: int) -> list[BatchSlice]:
        """Return slices, for Spark's tasks, of the batches from number `after + 1` to `until`.

        Batches that an earlier owner of the stream claimed are taken over. Acked batches are left
        out.
        """
        return self._links.run(lambda link: self._slices(link, after, until))

    def release_all(self, failed: int = 0, error: str | None = None) -> int:
        """Release the jobs that batches without an ack still hold, and return their number.

        Jobs of batches up to number `failed` expire with this error instead, so that the claim
        counts towards `max_deliveries`. When Spark repeats a batch, the stream claims those of its
        jobs that are still queued.
        """
        return self._links.run(lambda link: self._release_all(link, failed, error))

    def leave(self) -> None:
        """Give up ownership of the stream, and disconnect.

        The leases of its batches stay, because Spark may repeat a batch.
        """
        self._links.leave()

    def _ack_and_claim(self, link: Link, seq: int, rows: int) -> int:
        is_quick = time.monotonic() < self._planned_at + AHEAD_SECONDS
        self._end_claim_ahead(link)
        self._start_ack(link, seq)
        known = [number for _id, number, *_ in _read_batches(link, seq, None)]
        if known:
            self._own_batch(link, known[0])
        elif (claimed := self._claim(link, seq + 1, rows)).taken is None:
            self._end_ack(link)
            return self._wait_for_jobs(link, seq, rows, claimed)
        number = known[0] if known else seq + 1
        if is_quick and not known[1:]:
            self._claim_ahead(link, number, rows)
        self._count_backlog(link, number, rows)
        self._planned_at = time.monotonic()
        return number

    def _count_backlog(self, link: Link, seq: int, rows: int) -> None:
        """Count the ready jobs for `progress`, unless the last count is too recent.

        If batch `seq` got less than the `rows` that it could have, and the consumer has no guards,
        all ready jobs are in it, and the backlog is 0.
        """
        batch = self._owned_batches.get(seq)
        if batch is not None and batch.jobs < rows and not any(self._claimer.guards):
            self._progress["backlog"] = 0
        elif time.monotonic() >= self._counted_at + BACKLOG_SECONDS:
            params = {"consumer_ids": array([link.owned.consumer_id]), "cap": MOST_COUNTED}
            [counted] = link.session.run("count_jobs", params)
            self._progress["backlog"], self._counted_at = counted.ready, time.monotonic()

    def _wait_for_jobs(self, link: Link, seq: int, rows: int, claimed: Claimed) -> int:
        """Wait for jobs after `claimed`, a claim of batch `seq + 1` that found none.

        Return `seq + 1` if a later claim found some, else `seq`.
        """
        if self._cutoff is not None:
            return self._claim_available(link, seq, rows)
        if link.listener.register(link.session):
            claimed = self._claim(link, seq + 1, rows)
        if claimed.taken is None and link.listener.wait(claimed.next_due):
            claimed = self._claim(link, seq + 1, rows)
        return seq if claimed.taken is None else seq + 1

    def _claim_ahead(self, link: Link, seq: int, rows: int) -> None:
        """Start to claim the next batch in the background, if batch `seq` was full.

        Then the next batch is ready when Spark has run batch `seq` and asks for it. Nothing is
        claimed ahead if the consumer has guards (exclusive keys, limits or turns), because then the
        claim depends on the jobs in flight.
        """
        batch = self._owned_batches.get(seq)
        if batch is not None and batch.jobs == rows and not any(self._claimer.guards):
            session, next_seq = link.background_session, seq + 1
            self._claiming_ahead.start(
                link, next_seq, lambda: self._claim_batch(link, session, next_seq, rows)
            )

    def _end_claim_ahead(self, link: Link) -> None:
        """Wait for a claim that runs in the background, if any, and keep its batch in memory."""
        if done := self._claiming_ahead.wait(link):
            seq, (_claimed, batch) = done
            if batch is not None:
                self._record_claim(seq, batch)

    def _start_ack(self, link: Link, seq: int) -> None:
        """Start to ack the batches up to `seq`, after an earlier ack has ended.

        The ack goes on in the background. It is complete on return if the consumer has guards
        (exclusive keys, limits or turns), because the next claim depends on the jobs in flight, and
        if no claim used `link` (the open connections) yet, because then its guards are unknown.
        """
        self._end_ack(link)
        if seq <= self._acked:
            return
        if any(self._claimer.guards) or link is not self._link:
            self._record_ack(seq, self._ack(link, link.session, seq))
        else:
            self._acking.start(link, seq, lambda: self._ack(link, link.background_session, seq))

    def _end_ack(self, link: Link) -> None:
        """Wait for an ack that runs in the background, if any, and count it in `progress`."""
        if done := self._acking.wait(link):
            self._record_ack(*done)

    def _claim_available(self, link: Link, seq: int, rows: int) -> int:
        """Claim batch `seq + 1` of jobs that were available when the query began (AvailableNow).

        Return `seq + 1`. If no such job can be claimed, give up the stream, because the query ends,
        and return `seq`.
        """
        for _attempt in range(CLAIM_ATTEMPTS):
            claimed = self._claim(link, seq + 1, rows)
            if claimed.taken is not None:
                return seq + 1
            if not claimed.passed and claimed.refusal not in LIMITS:
                break
            time.sleep(RETRY_SECONDS)
        self._links.leave()
        return seq

    def _claim(self, link: Link, seq: int, rows: int) -> Claimed:
        if link is not self._link:
            self._link, self._claimer = link, Claimer(link.owned.consumer_id)
        claimed, batch = self._claim_batch(link, link.session, seq, rows)
        if batch is not None:
            self._record_claim(seq, batch)
        return claimed

    def _claim_batch(
        self, link: Link, session: Session, seq: int, rows: int
    ) -> tuple[Claimed, StreamBatch | None]:
        owned, terms = link.owned, self._terms(link)
        return claiming.claim(session, self._claimer, owned, seq, rows, terms, self._limit_entry)

    def _record_claim(self, seq: int, batch: StreamBatch) -> None:
        self._remember(seq, batch)
        emit(JobsClaimed(self._options.channel, self._options.consumer, batch.jobs))

    def _limit_entry(self, entry: Entry) -> Entry:
        """Return the entry into the claim index, limited to jobs that were available at a cutoff.

        The cutoff is the time of `stop_at_available_jobs`. The entry is unchanged without a cutoff,
        and if keys are exclusive: jobs that are blocked by their key become available later, when
        the jobs before them end.
        """
        if self._cutoff is None or self._claimer.guards.exclusive:
            return entry
        return entry._replace(until=min(self._cutoff, entry.until or self._cutoff))

    def _terms(self, link: Link) -> Terms:
        newest = None if self._cutoff is None else ids.first_of(self._cutoff + CLOCK_TOLERANCE)
        return Terms(
            VIA,
            self._options.max_lease,
            link.owned.node_id,
            self._options.lease_duration,
            before_id=newest,
        )

    def _own_batch(self, link: Link, seq: int) -> StreamBatch | None:
        """Return batch `seq`, taken over if an earlier owner claimed it, or None if it is acked."""
        if seq not in self._owned_batches:
            batch = claiming.take_over(link.session, link.owned, seq, self._terms(link))
            if batch is not None:
                self._remember(seq, batch)
        return self._owned_batches.get(seq)

    def _remember(self, seq: int, batch: StreamBatch) -> None:
        self._owned_batches[seq] = batch
        self._progress["claimed"] += batch.jobs
        self._progress["redelivered"] += batch.redelivered
        self._report |= {"batch": seq, "jobs": batch.jobs}

    def _slices(self, link: Link, after: int, until: int) -> list[BatchSlice]:
        known = [self._own_batch(link, row.seq) for row in _read_batches(link, after, until)]
        connection, partitions = link.session.connection, self._options.partitions
        return [
            slice
            for batch in known
            if batch is not None
            for slice in batches.slice_batch(
                connection, batch.id, batch.lease_token, batch.jobs, partitions
            )
        ]

    def _ack(self, link: Link, session: Session, seq: int) -> Acked:
        done = []
        with session.atomic():
            ownership.hold(session, link.owned)
            params = {"stream_id": link.owned.stream_id, "after": self._acked, "until": seq}
            for batch in session.run("lock_batches", params):
                settled = settling.deliver_batch(session, batch.lease_token, batch.job_ids)
                params = {"batch_id": batch.batch_id, "acked": settled.jobs, "kept": KEPT_BATCHES}
                [acked] = session.run("ack_batch", params)
                done.append((settled, acked.lost))
        for settled, _lost in done:
            settling.emit_and_notify(session, settled)
        return [(settled.jobs, lost) for settled, lost in done]

    def _record_ack(self, seq: int, acked: Acked) -> None:
        """Note in memory that batches up to `seq` are acked. Emit an event if jobs were lost."""
        self._progress["acked"] += sum(delivered for delivered, _lost in acked)
        self._progress["lost"] += (lost := sum(lost for _delivered, lost in acked))
        self._acked = max(self._acked, seq)
        self._owned_batches = {
            number: batch for number, batch in self._owned_batches.items() if number > seq
        }
        if lost:
            emit(LeasesLost(lost, self._options.channel, self._options.consumer))

    def _release_all(self, link: Link, failed: int, error: str | None) -> int:
        self._end_claim_ahead(link)
        self._end_ack(link)
        released = []
        with link.session.atomic():
            ownership.hold(link.session, link.owned)
            params = {"stream_id": link.owned.stream_id, "after": 0, "until": claiming.MAX_SEQ}
            for batch in link.session.run("lock_batches", params):
                outcome = (Event.EXPIRE, error) if batch.seq <= failed else (Event.RELEASE, None)
                released += settling.end_batch(
                    link.session, batch.lease_token, batch.job_ids, *outcome
                )
                released_as = {
                    "batch_id": batch.batch_id,
                    "lease_token": None,
                    "state": claiming.RELEASED,
                }
                link.session.run("move_batch", released_as)
        settling.emit_and_notify(link.session, settling.summarize(released))
        return len(released)


def _read_batches(link: Link, after: int, until: int | None) -> list[Row]:
    """Return the batches from number `after + 1` to `until`, acked or not, in their order.

    With None for `until` there is no upper limit.
    """
    params = {"stream_id": link.owned.stream_id, "after": after, "until": until}
    return link.session.run("batches", params)
