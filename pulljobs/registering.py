"""Creating, changing and deleting channels, producers, consumers and limit groups.

The HTTP API, the admin and commands that read declarations use this.
"""

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeVar
from urllib.parse import urlsplit, urlunsplit

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from pulljobs import rates
from pulljobs.conf import settings
from pulljobs.engine.addresses import is_absolute
from pulljobs.engine.validation import encodable
from pulljobs.errors import InvalidRegistration
from pulljobs.models import Channel, Consumer, FlowKey, LimitGroup, Producer, options
from pulljobs.models.channels import NOT_IN_HEADER, is_header_text
from pulljobs.models.token_holders import validate_name
from pulljobs.storage import counts, dead, jobs, listen
from pulljobs.storage.rows import Stats

P = TypeVar("P", Channel, Producer, Consumer)
T = TypeVar("T")

NUL: Final = "\x00"
BATCH: Final = 1000
LONGEST: Final = 255
KEPT: Final = {"id", "channel", "name", "created_at", "changed_at"}
"""Fields that a deleted consumer keeps when it is created again, because history names it."""
TOKEN: Final = re.compile(r"[\x21-\x7e]+")
MASK: Final = "***"


class Change(StrEnum):
    """Effect of `put` or `put_limit_group` on a row."""

    MADE = "made"
    CHANGED = "changed"
    UNCHANGED = "unchanged"


def check(model: type[P], name: str, fields: Mapping[str, Any]) -> None:
    """Raise InvalidRegistration if the name of a row or a field, limits aside, is invalid."""
    check_name(name)
    if model is Producer and not is_header_text(name):
        raise InvalidRegistration(NOT_IN_HEADER)
    title, token = fields.get("title", ""), fields["token"]
    if len(title) > LONGEST or not encodable(title):
        raise InvalidRegistration(
            f"The name must have {LONGEST} characters or fewer, no NUL and no half surrogate pair."
        )
    if not (TOKEN.fullmatch(token) and len(token) <= LONGEST):
        raise InvalidRegistration(
            f"The token must be up to {LONGEST} ASCII letters, digits and signs, without spaces."
        )
    if model is Consumer and not _has_callback(fields):
        raise InvalidRegistration("callbackUrl must be an absolute http or https URL.")
    if model is Consumer and _is_masked(fields["callback_url"]):
        raise InvalidRegistration(
            f"callbackUrl contains {MASK}, the mask for users who may not change it: write the URL "
            "without the mask."
        )
    if model is Consumer and fields["type"] not in Consumer.Type.values:
        raise InvalidRegistration("type must be pull or push: leave it out for push.")
    if len(fields.get("retry_strategy", "")) > LONGEST:
        raise InvalidRegistration(
            f"The retry delays must have {LONGEST} characters or fewer, commas too: name fewer."
        )


def _check_limits(row: Channel | Producer | Consumer) -> None:
    if not isinstance(row, Consumer):
        return
    try:
        _check_flow(row)
        row.check_limits()
    except ValueError as error:
        raise InvalidRegistration(str(error)) from error
    except ValidationError as error:
        texts = [f"{name}: {' '.join(wrong)}" for name, wrong in error.message_dict.items()]
        raise InvalidRegistration(" ".join(texts)) from error


def _check_flow(row: Consumer | LimitGroup) -> None:
    """Raise ValueError if the limits that consumers and groups have in common are invalid."""
    if row.max_in_flight is not None and row.max_in_flight < 1:
        raise ValueError("maxInFlight must be at least 1; to stop claims, pause the consumer.")
    rates.check_limit(row.rate, row.rate_burst, window=row.rate_window)


def put_limit_group(name: str, limits: Mapping[str, Any]) -> tuple[LimitGroup, Change]:
    """Create a limit group, or change those of its limits that are given.

    `limits` has some of `rate`, `rate_burst`, `rate_window` and `max_in_flight`. A change wakes the
    waiters of the group's consumers. Raise InvalidRegistration, and change nothing, if the name or
    a limit is invalid.
    """
    check_name(name)
    if wrong := options.wrong_limits(limits):
        raise InvalidRegistration(" ".join(wrong))
    return _in_transaction(partial(_put_limit_group, name, limits))


def _put_limit_group(name: str, limits: Mapping[str, Any]) -> tuple[LimitGroup, Change]:
    group = _lock_group(name) or LimitGroup(name=name)
    is_new = group._state.adding
    differing = {key: value for key, value in limits.items() if getattr(group, key) != value}
    if not (is_new or differing):
        return group, Change.UNCHANGED
    for key, value in differing.items():
        setattr(group, key, value)
    _check_group(group)
    group.save(using=settings().DATABASE)
    wake_members(group)
    return group, Change.MADE if is_new else Change.CHANGED


def _lock_group(name: str) -> LimitGroup | None:
    rows = LimitGroup.objects.using(settings().DATABASE).select_for_update()
    return None if NUL in name else rows.filter(name=name).first()


def _check_group(group: LimitGroup) -> None:
    try:
        _check_flow(group)
        group.full_clean(validate_unique=False)
    except (ValueError, ValidationError) as error:
        texts = error.messages if isinstance(error, ValidationError) else [str(error)]
        raise InvalidRegistration(" ".join(texts)) from error


def wake_members(group: LimitGroup) -> None:
    """Wake the waiters of all consumers of a group after the commit, for a change of its limits."""
    using = settings().DATABASE
    members = Consumer.objects.using(using).filter(limit_group=group)
    listen.wake_on_commit(using, members.values_list("pk", flat=True))


def _resolve_group(fields: dict[str, Any]) -> None:
    """Replace the name of a limit group in the fields of a consumer by the row of the group.

    Raise InvalidRegistration if there is no such group.
    """
    name = fields.get("limit_group")
    if isinstance(name, str):
        rows = LimitGroup.objects.using(settings().DATABASE)
        group = rows.filter(name=name).first() if encodable(name) else None
        if group is None:
            raise InvalidRegistration(f"There is no limit group {name!r}: create it first.")
        fields["limit_group"] = group


def _has_callback(fields: Mapping[str, Any]) -> bool:
    """Return True if the URL for deliveries is absolute, or empty in a consumer of type pull."""
    url = fields["callback_url"]
    return is_absolute(url) or (not url and fields["type"] == Consumer.Type.PULL)


def check_name(name: str) -> None:
    """Raise InvalidRegistration if the name can't be a part of the path of a URL."""
    try:
        validate_name(name)
    except ValidationError as error:
        raise InvalidRegistration(error.message) from error


def masked(url: str) -> str:
    """Return the URL with its login and query as `***`, for users who may not change it.

    A text that is no absolute URL is masked as a whole.
    """
    if not is_absolute(url):
        return url and MASK
    parts = urlsplit(url)
    _login, at, place = parts.netloc.rpartition("@")
    netloc, query = f"{MASK}@{place}" if at else place, MASK if parts.query else ""
    return urlunsplit(parts._replace(netloc=netloc, query=query))


def _is_masked(url: str) -> bool:
    parts = urlsplit(url)
    return MASK in (parts.username, parts.query)


class Registered(NamedTuple, Generic[P]):
    """Row that `put` returns, and what `put` did to it."""

    token_holder: P
    change: Change


def put(
    model: type[P], key: Mapping[str, Any], decide: Callable[[P | None], Mapping[str, Any]]
) -> Registered[P]:
    """Create the row of this key, or change it under its lock, in a transaction.

    `key` are the fields that identify the row: `name`, and `channel` for a consumer. `decide` gets
    the row, or None if there is none or it is deleted, and returns the wanted fields with the plain
    `token`. After an exception of `decide`, or InvalidRegistration, nothing is changed. A row that
    has the wanted fields already keeps its `changed_at`.
    """
    check_name(key["name"])
    return _in_transaction(partial(_put, settings().DATABASE, model, key, decide))


def _in_transaction(work: Callable[[], T]) -> T:
    """Run work in a transaction, again if another caller created its row at the same moment."""
    using = settings().DATABASE
    try:
        with transaction.atomic(using=using):
            return work()
    except IntegrityError:
        with transaction.atomic(using=using):
            return work()


def _put(
    using: str,
    model: type[P],
    key: Mapping[str, Any],
    decide: Callable[[P | None], Mapping[str, Any]],
) -> Registered[P]:
    row = model._default_manager.using(using).select_for_update().filter(**key).first()
    exists = row is not None and getattr(row, "deleted_at", None) is None
    fields = dict(decide(row if exists else None))
    _resolve_group(fields)
    check(model, key["name"], fields)
    token_holder = row or model(**key)
    if not exists:
        _reset(token_holder)
    if not _set_fields(token_holder, fields) and exists:
        return Registered(token_holder, Change.UNCHANGED)
    _check_limits(token_holder)
    token_holder.save(using=using)
    if row is not None and not exists:
        _reset_flow(using, row.pk)
    if exists and model is Consumer:
        listen.wake_on_commit(using, [token_holder.pk])  # Its next token may come sooner.
    return Registered(token_holder, Change.CHANGED if exists else Change.MADE)


def _reset(token_holder: Channel | Producer | Consumer) -> None:
    """Set the fields of a deleted row, without saving, to the defaults of a new row."""
    for field in token_holder._meta.concrete_fields:
        if field.name not in KEPT:
            setattr(token_holder, field.attname, field.get_default())


def _reset_flow(using: str, consumer_id: int) -> None:
    """End the throttle and the weights of keys that a consumer had before it was deleted."""
    Consumer.objects.using(using).filter(pk=consumer_id).update(throttled_until=None)
    FlowKey.objects.using(using).filter(consumer_id=consumer_id).exclude(weight=1).update(weight=1)


def _set_fields(token_holder: Channel | Producer | Consumer, fields: dict[str, Any]) -> bool:
    """Set the fields and the token that differ, without saving. Return True if any did."""
    token = fields.pop("token")
    differing = {
        name: value for name, value in fields.items() if getattr(token_holder, name) != value
    }
    for name, value in differing.items():
        setattr(token_holder, name, value)
    if token_holder.has_token(token):
        return bool(differing)
    token_holder.set_token(token)
    return True


def delete_consumer(
    channel: Channel, name: str, check: Callable[[Consumer | None], object]
) -> Stats | None:
    """Delete a consumer without queued or running jobs, under the lock of its row.

    Return None, or the counts of its jobs if it has queued or running ones: it then stays. `check`
    gets the row, or None if there is none, and may raise to refuse the deletion. The row is kept,
    marked as deleted, because history names it. Its DEAD jobs are deleted in batches. A caller that
    was interrupted can call again until the last job is gone.
    """
    using = settings().DATABASE
    with transaction.atomic(using=using):
        rows = Consumer.objects.using(using).select_for_update()
        consumer = None if NUL in name else rows.filter(channel=channel, name=name).first()
        counted = None if consumer is None else jobs.stats(using, consumer.pk, counts.CAP + 1)
        if consumer is None or counted is None or _is_gone(consumer, counted):
            check(None)
            return None
        check(consumer)
        if counted.live:
            return counted
        known = Consumer.objects.using(using).filter(pk=consumer.pk, deleted_at=None)
        known.update(deleted_at=Now())
    while dead.delete(using, consumer.pk, retries=0, job_id=None, limit=BATCH):
        pass
    return None


def _is_gone(consumer: Consumer, counted: Stats) -> bool:
    """Return True if a consumer is marked as deleted and `delete_consumer` has nothing left to do.

    Its DEAD jobs are left to delete, unless it has queued or running jobs, too: the admin may have
    marked such a consumer as deleted.
    """
    return consumer.deleted_at is not None and bool(counted.live or not counted.dead)
