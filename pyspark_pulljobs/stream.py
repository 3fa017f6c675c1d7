"""Stream of a consumer's jobs: its owner claims batches, acks them and takes over others."""

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any, Final

from pulljobs import ids
from pulljobs.engine.claiming.claimer import Claimer
from pulljobs.engine.claiming.rows import Claimed, Refusal, Terms
from pulljobs.engine.low_water_marks import Entry
from pulljobs.engine.sql import Row
from pulljobs.engine.telemetry import JobsClaimed, LeasesLost, emit
from pulljobs.states import Event
from pyspark_pulljobs import batches, claiming, ownership, settling
from pyspark_pulljobs.background import Aside
from pyspark_pulljobs.batches import BatchSlice
from pyspark_pulljobs.claiming import Batch
from pyspark_pulljobs.link import Link, Links
from pyspark_pulljobs.session import Session
from pyspark_pulljobs.stream_options import Wanted

DOOR: Final = "spark"
KEPT: Final = 100
"""Batches that are stored after their ack."""
ACKED: Final = "acked"
LOOKS: Final = 5
"""Attempts to claim locked jobs, before a query with the trigger AvailableNow skips them."""
LOOK_SECONDS: Final = 0.2
CLOCK: Final = timedelta(milliseconds=2)
"""Tolerance for ids, whose time is rounded to milliseconds."""
AHEAD_SECONDS: Final = 5.0
"""Longest time of a batch for which the next is claimed ahead: its jobs wait under a lease."""

Lost = list[int]
"""Number of lost jobs of each batch."""


class Stream:
    """Stream of one owner, for use in one thread; it connects on first use."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._report: dict[str, Any] = {
            "stream": wanted.stream,
            "consumer": f"{wanted.channel}/{wanted.consumer}",
        }
        self._links = Links(wanted, self._report)
        self._link: Link | None = None
        self._claimer = Claimer(0)
        self._ours: dict[int, Batch] = {}
        """Batches that this process claimed or took over, by number."""
        self._acked = 0
        aside = ThreadPoolExecutor(1, "aside")
        self._acking: Aside[Lost] = Aside(aside)
        self._ahead: Aside[tuple[Claimed, Batch | None]] = Aside(aside)
        self._asked_at = -AHEAD_SECONDS
        self._until: datetime | None = None

    def end(self) -> int:
        """Return the number of the last acked batch, 0 before the first."""
        params = {"stream": self._wanted.stream}
        [row] = self._links.surviving(lambda link: link.session.run("stream_end", params))
        return int(row.seq)

    def stop_at_what_is_there(self) -> None:
        """Claim from now on only jobs that are available now."""
        params = {"stream": self._wanted.stream}
        [row] = self._links.surviving(lambda link: link.session.run("stream_owner", params))
        self._until = row.now

    def next_after(self, seq: int, rows: int) -> int:
        """Ack the batches up to `seq`, and return the number of the next batch, or `seq`: no jobs.

        The ack may continue in the background. Without jobs, this waits for at most a second, and
        the ack is complete when it returns.
        """
        return self._links.surviving(lambda link: self._next(link, seq, rows))

    def ack(self, seq: int) -> None:
        """Ack all batches up to `seq`: their jobs that are still held are delivered."""

        def work(link: Link) -> None:
            self._begin_ack(link, seq)
            self._end_ack(link)

        if seq > self._acked:
            self._links.surviving(work)

    def ack_soon(self, seq: int) -> None:
        """Ack all batches up to `seq`; the ack may continue after this returns."""
        if seq > max(self._acked, self._acking.seq):
            self._links.surviving(lambda link: self._begin_ack(link, seq))

    def slices(self, after: int, until: int) -> list[BatchSlice]:
        """Return slices of the batches after `after` up to `until`; take over those of others."""
        return self._links.surviving(lambda link: self._slices(link, after, until))

    def give_back(self, failed: int = 0, error: str | None = None) -> int:
        """Release all held jobs, and return their number.

        Batches up to `failed` expire with that error instead: deliveries of their jobs count. When
        Spark repeats a batch, it claims those of its jobs that are still queued.
        """
        return self._links.surviving(lambda link: self._give_back(link, failed, error))

    def leave(self) -> None:
        """Give up the stream. Leases stay, because Spark may repeat a batch."""
        self._links.leave()

    def _next(self, link: Link, seq: int, rows: int) -> int:
        is_quick = time.monotonic() < self._asked_at + AHEAD_SECONDS
        self._take_ahead(link)
        self._begin_ack(link, seq)
        known = [number for _id, number, *_ in _batches(link, seq, None)]
        if known:
            self._own(link, known[0])
        elif (claimed := self._claim(link, seq + 1, rows)).taken is None:
            self._end_ack(link)
            return self._waited(link, seq, rows, claimed)
        number = known[0] if known else seq + 1
        if is_quick and not known[1:]:
            self._go_ahead(link, number, rows)
        self._asked_at = time.monotonic()
        return number

    def _waited(self, link: Link, seq: int, rows: int, claimed: Claimed) -> int:
        """Wait for jobs after a claim without jobs; return `seq + 1` if some came, else `seq`."""
        if self._until is not None:
            return self._next_of_what_is_there(link, seq, rows)
        if link.waiting.register(link.session):
            claimed = self._claim(link, seq + 1, rows)
        if claimed.taken is None and link.waiting.is_woken(claimed.next_due):
            claimed = self._claim(link, seq + 1, rows)
        return seq if claimed.taken is None else seq + 1

    def _go_ahead(self, link: Link, seq: int, rows: int) -> None:
        """Claim the batch after `seq` in advance, if `seq` was full and the consumer has no guards.

        Spark asks for it after `seq` has run, so its jobs do not wait for long.
        """
        batch = self._ours.get(seq)
        if batch is not None and batch.jobs == rows and not any(self._claimer.guards):
            session, next_seq = link.aside, seq + 1
            self._ahead.begin(link, next_seq, lambda: self._claimed(link, session, next_seq, rows))

    def _take_ahead(self, link: Link) -> None:
        if done := self._ahead.end(link):
            seq, (_claimed, batch) = done
            if batch is not None:
                self._took(seq, batch)

    def _begin_ack(self, link: Link, seq: int) -> None:
        """Begin to ack the batches up to `seq`.

        The ack is complete on return if the consumer has guards, because the next claim depends on
        the jobs in flight and on their keys, and if the link is new, because its guards are not
        known yet. Otherwise the ack continues in the background.
        """
        self._end_ack(link)
        if seq <= self._acked:
            return
        if any(self._claimer.guards) or link is not self._link:
            self._note(seq, self._ack(link, link.session, seq))
        else:
            self._acking.begin(link, seq, lambda: self._ack(link, link.aside, seq))

    def _end_ack(self, link: Link) -> None:
        """Wait for the ack in the background."""
        if done := self._acking.end(link):
            self._note(*done)

    def _next_of_what_is_there(self, link: Link, seq: int, rows: int) -> int:
        for _look in range(LOOKS):
            claimed = self._claim(link, seq + 1, rows)
            if claimed.taken is not None:
                return seq + 1
            if not claimed.passed and claimed.refusal is not Refusal.MAX_IN_FLIGHT:
                break
            time.sleep(LOOK_SECONDS)
        self._links.leave()
        return seq

    def _claim(self, link: Link, seq: int, rows: int) -> Claimed:
        if link is not self._link:
            self._link, self._claimer = link, Claimer(link.owned.consumer_id)
        claimed, batch = self._claimed(link, link.session, seq, rows)
        if batch is not None:
            self._took(seq, batch)
        return claimed

    def _claimed(
        self, link: Link, session: Session, seq: int, rows: int
    ) -> tuple[Claimed, Batch | None]:
        stream, terms = (self._wanted.stream, link.owned), self._terms(link)
        return claiming.claim(session, self._claimer, stream, seq, rows, terms, self._bound)

    def _took(self, seq: int, batch: Batch) -> None:
        self._take(seq, batch)
        emit(JobsClaimed(self._wanted.channel, self._wanted.consumer, batch.jobs))

    def _bound(self, entry: Entry) -> Entry:
        """Limit a claim to jobs that were available at `_until`, unless keys are exclusive.

        Blocked jobs become available when the jobs before them end, which is later.
        """
        if self._until is None or self._claimer.guards.exclusive:
            return entry
        return entry._replace(until=min(self._until, entry.until or self._until))

    def _terms(self, link: Link) -> Terms:
        newest = None if self._until is None else ids.first_of(self._until + CLOCK)
        return Terms(
            DOOR,
            self._wanted.max_lease,
            link.owned.node_id,
            self._wanted.lease_duration,
            before_id=newest,
        )

    def _own(self, link: Link, seq: int) -> Batch | None:
        """Return an existing batch, taking it over from another owner; None if it is acked."""
        if seq not in self._ours:
            stream = (self._wanted.stream, link.owned)
            batch = claiming.take_over(link.session, stream, seq, self._terms(link))
            if batch is not None:
                self._take(seq, batch)
        return self._ours.get(seq)

    def _take(self, seq: int, batch: Batch) -> None:
        self._ours[seq] = batch
        self._report |= {"batch": seq, "jobs": batch.jobs}

    def _slices(self, link: Link, after: int, until: int) -> list[BatchSlice]:
        known = [self._own(link, row.seq) for row in _batches(link, after, until)]
        connection, partitions = link.session.connection, self._wanted.partitions
        return [
            slice
            for batch in known
            if batch is not None
            for slice in batches.sliced(
                connection, batch.id, batch.lease_token, batch.jobs, partitions
            )
        ]

    def _ack(self, link: Link, session: Session, seq: int) -> Lost:
        done = []
        with session.atomic():
            ownership.hold(session, link.owned, self._wanted.stream)
            params = {"stream_id": link.owned.stream_id, "after": self._acked, "until": seq}
            for batch in session.run("lock_batches", params):
                rows = settling.end_batch(session, batch.lease_token, batch.job_ids, Event.DELIVER)
                params = {"batch_id": batch.batch_id, "acked": len(rows), "kept": KEPT}
                [acked] = session.run("ack_batch", params)
                done.append((rows, acked.lost))
        for rows, _lost in done:
            settling.tell(session, rows)
        return [lost for _rows, lost in done]

    def _note(self, seq: int, lost: Lost) -> None:
        """Record that all batches up to `seq` are acked, and emit how many jobs were lost."""
        self._acked = max(self._acked, seq)
        self._ours = {number: batch for number, batch in self._ours.items() if number > seq}
        if sum(lost):
            emit(LeasesLost(sum(lost), self._wanted.channel, self._wanted.consumer))

    def _give_back(self, link: Link, failed: int, error: str | None) -> int:
        self._take_ahead(link)
        self._end_ack(link)
        released = []
        with link.session.atomic():
            ownership.hold(link.session, link.owned, self._wanted.stream)
            params = {"stream_id": link.owned.stream_id, "after": 0, "until": claiming.LAST}
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
        settling.tell(link.session, released)
        return len(released)


def _batches(link: Link, after: int, until: int | None) -> list[Row]:
    """Read the batches after `after` up to `until`, by number."""
    params = {"stream_id": link.owned.stream_id, "after": after, "until": until}
    return link.session.run("batches", params)
