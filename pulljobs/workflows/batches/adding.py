"""Making batches, adding members to them, and closing them.

A member is counted in the transaction that publishes it, under a lock that publishers share. So no
process decides that a batch is complete between a publish and its count.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final, Self

from asgiref.sync import sync_to_async
from django.db import transaction

from pulljobs import ids, publishing
from pulljobs.conf import settings
from pulljobs.engine.encodings import integer_array
from pulljobs.engine.validation import Draft, NewMessage, Payload, check_iterable, encodable
from pulljobs.errors import BatchEnded, InvalidMessage, UnknownBatch
from pulljobs.models import Job, Producer
from pulljobs.publishing import Receipt
from pulljobs.storage import batches
from pulljobs.storage.statements import run
from pulljobs.workflows.batches import callbacks
from pulljobs.workflows.batches.callbacks import AnyCallback, Ending
from pulljobs.workflows.models import Batch
from pulljobs.workflows.models.batches import LONGEST_NAME

CHUNK: Final = 1000
ENDED: Final = ("completed", "cancelled")
"""States in which a batch takes no members."""
NO_CHANGE: Final = {"members": 0, "delivered": 0, "dead": 0, "redriven": 0}


class OpenBatch:
    """Batch to which members can be added until it is complete or cancelled."""

    def __init__(self, id: int) -> None:
        self.id = id

    def __repr__(self) -> str:
        return f"<OpenBatch {self}>"

    def __str__(self) -> str:
        return ids.encode(self.id)

    def publish(
        self,
        channel: str,
        payload: Payload,
        *,
        key: str | None = None,
        priority: int = 0,
        cost: int = 1,
        message_id: str | None = None,
        headers: dict[str, str] | None = None,
        content_type: str | None = None,
        delay: timedelta | None = None,
        available_at: datetime | None = None,
        producer: Producer | None = None,
    ) -> Receipt:
        """Publish a message whose jobs are members, with the arguments of `publish`.

        Join the caller's transaction. Raise what `publish` raises, UnknownBatch, or BatchEnded if
        the batch is complete or cancelled. If the message replaces that of a queued job with the
        same key, this job becomes no member.
        """
        draft = Draft(
            payload=payload,
            key=key,
            priority=priority,
            cost=cost,
            message_id=message_id,
            headers=headers or {},
            content_type=content_type,
            delay=delay,
            available_at=available_at,
        )
        message = publishing.checked(draft, settings())
        using = settings().DATABASE
        with transaction.atomic(using=using):
            self._lock(using)
            receipt = publishing.publish_checked(
                channel, message, producer, using, batch_id=self.id
            )
            self._add_members(using, [receipt])
        return receipt

    def publish_many(
        self,
        channel: str,
        drafts: Iterable[Draft | Payload],
        *,
        producer: Producer | None = None,
    ) -> list[Receipt]:
        """Publish all messages of an iterable as members, or none if one is invalid.

        Join the caller's transaction. The receipts, in order, report duplicates and full keys,
        which do not raise. Raise what `publish` raises otherwise.
        """
        check_iterable(drafts)
        using = settings().DATABASE
        receipts: list[Receipt] = []
        with transaction.atomic(using=using):
            self._lock(using)
            for messages in _chunks(drafts):
                part = publishing.publish_all_checked(
                    channel, messages, producer, using, batch_id=self.id
                )
                self._add_members(using, part)
                receipts += part
        return receipts

    async def apublish(self, channel: str, payload: Payload, **options: Any) -> Receipt:
        """Publish a member from async code, with the keyword arguments of `publish`.

        The member is committed when it returns, as by `pulljobs.publishing.apublish`.
        """
        return await sync_to_async(self.publish)(channel, payload, **options)

    async def apublish_many(
        self, channel: str, drafts: Iterable[Draft | Payload], **options: Any
    ) -> list[Receipt]:
        """Publish members from async code, with the keyword arguments of `publish_many`."""
        return await sync_to_async(self.publish_many)(channel, drafts, **options)

    @contextmanager
    def batch(self, name: str, **on: AnyCallback) -> Iterator["OpenBatch"]:
        """Make a member of this batch that is a batch itself, and close it after the block.

        The arguments are those of the function `batch`, except `parent`.
        """
        with batch(name, parent=self, **on) as nested:
            yield nested

    def close(self) -> None:
        """Close the batch: it completes once every member has ended. Raise UnknownBatch."""
        using = settings().DATABASE
        params = {"batch_id": self.id, "is_cancelled": False}
        if not run(using, "close_batch", params):
            raise UnknownBatch(str(self))
        batches.announce(using, [self.id])

    async def aclose(self) -> None:
        """Close the batch from async code."""
        await sync_to_async(self.close)()

    def _lock(self, using: str) -> None:
        """Take the shared lock of publishers, so that the batch can't complete before the commit.

        If the batch is closed, its counts are merged after the commit, because the batch loop skips
        locked batches. Raise UnknownBatch, or BatchEnded.
        """
        rows = run(using, "lock_batch_to_add", {"batch_id": self.id})
        if not rows:
            raise UnknownBatch(str(self))
        if rows[0].state in ENDED:
            raise BatchEnded(str(self), rows[0].state)
        if rows[0].state == "closed":
            batches.announce(using, [self.id])

    def _add_members(self, using: str, receipts: Sequence[Receipt]) -> None:
        job_ids = [
            job_id
            for receipt in receipts
            for job_id in receipt.job_ids
            if job_id not in receipt.replaced
        ]
        if job_ids:
            params = {"batch_id": self.id, "job_ids": integer_array(job_ids)}
            run(using, "add_batch_part", params)

    def _add_nested(self, using: str) -> None:
        self._lock(using)
        run(using, "append_batch_sum", {"batch_id": self.id, **NO_CHANGE, "members": 1})

    @classmethod
    def _create(cls, using: str, name: str, stored: list[dict[str, Any]], **fields: Any) -> Self:
        row = Batch.objects.using(using).create(name=name, callbacks=stored, **fields)
        return cls(row.pk)


def create(
    name: str,
    *,
    on_complete: AnyCallback = None,
    on_success: AnyCallback = None,
    on_dead: AnyCallback = None,
    parent: OpenBatch | None = None,
    run_id: int | None = None,
) -> OpenBatch:
    """Make a batch that stays open until `close` is called. Join the caller's transaction.

    Once it is closed and every member has ended, its callbacks are published: `on_complete` always,
    `on_success` if no member is dead, else `on_dead`. The run with `run_id` becomes due then.
    `parent` is the batch of which this is one member. Raise InvalidMessage, PayloadTooLarge, and
    UnknownBatch or BatchEnded because of the parent.
    """
    _check_name(name)
    _check_parent(parent)
    stored = callbacks.store(
        {Ending.COMPLETE: on_complete, Ending.SUCCESS: on_success, Ending.DEAD: on_dead}
    )
    using = settings().DATABASE
    with transaction.atomic(using=using):
        if parent is not None:
            parent._add_nested(using)
        parent_id = None if parent is None else parent.id
        return OpenBatch._create(using, name, stored, parent_id=parent_id, run_id=run_id)


async def acreate(name: str, **options: Any) -> OpenBatch:
    """Make a batch from async code, with the arguments of `create`. It is committed at once."""
    return await sync_to_async(create)(name, **options)


@contextmanager
def batch(
    name: str,
    *,
    on_complete: AnyCallback = None,
    on_success: AnyCallback = None,
    on_dead: AnyCallback = None,
    parent: OpenBatch | None = None,
) -> Iterator[OpenBatch]:
    """Make a batch, publish its members in the block, and close it, all in one transaction.

    The arguments are those of `create`. An exception in the block rolls everything back.
    """
    with transaction.atomic(using=settings().DATABASE):
        made = create(
            name, on_complete=on_complete, on_success=on_success, on_dead=on_dead, parent=parent
        )
        yield made
        made.close()


@asynccontextmanager
async def abatch(name: str, **options: Any) -> AsyncIterator[OpenBatch]:
    """Make a batch from async code, by the arguments of `create`, and close it after the block.

    Transactions do not span awaits, so each publish is committed by itself. After an exception the
    batch is cancelled: its queued members are killed.
    """
    from pulljobs.workflows.batches.acting import cancel

    made = await acreate(name, **options)
    try:
        yield made
    except BaseException:
        await sync_to_async(cancel)(made.id)
        raise
    await made.aclose()


def extend(id: int | str) -> OpenBatch:
    """Return the batch with this id, to publish more members. This call runs no query.

    Raise UnknownBatch for a text that is no id.
    """
    number = ids.find_number(id)
    if number is None:
        raise UnknownBatch(repr(id))
    return OpenBatch(number)


def find_batch(job_id: int | str) -> OpenBatch | None:
    """Return the batch of which a job is a member, so that its handler can add members to it.

    None if the job is in no batch, was delivered, or does not exist.
    """
    number = ids.find_number(job_id) or 0
    row = Job.objects.using(settings().DATABASE).filter(id=number, batch_id__isnull=False)
    batch_id = row.values_list("batch_id", flat=True).first()
    return None if batch_id is None else OpenBatch(batch_id)


def _check_name(name: object) -> None:
    is_text = isinstance(name, str) and name.isprintable() and encodable(name)
    if not is_text or not 0 < len(str(name)) <= LONGEST_NAME:
        raise InvalidMessage(
            f"The name of a batch must be one line of 1 to {LONGEST_NAME} characters, not {name!r}."
        )


def _check_parent(parent: object) -> None:
    if not (parent is None or isinstance(parent, OpenBatch)):
        raise InvalidMessage(
            f"parent must be a batch, such as batches.extend(id) returns it, not {parent!r}."
        )


def _chunks(drafts: Iterable[Draft | Payload]) -> Iterator[list[NewMessage]]:
    items = iter(drafts)
    while chunk := list(islice(items, CHUNK)):
        yield [publishing.ready(item, settings()) for item in chunk]
