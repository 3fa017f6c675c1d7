"""Channels, producers and consumers, as HTTP and files ask for them."""

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, Generic, NamedTuple, TypeVar
from urllib.parse import urlsplit, urlunsplit

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from pulljobs.conf import settings
from pulljobs.engine.addresses import is_absolute
from pulljobs.errors import InvalidRegistration
from pulljobs.models import Channel, Consumer, Producer
from pulljobs.models.registry import validate_name
from pulljobs.storage import counts, dead, jobs
from pulljobs.storage.rows import Stats

P = TypeVar("P", Channel, Producer, Consumer)

NUL: Final = "\x00"
BATCH: Final = 1000
LONGEST: Final = 255
KEPT: Final = {"id", "channel", "name", "created_at", "changed_at"}
"""Of a consumer that was deleted and is made again; history names it."""
TOKEN: Final = re.compile(r"[\x21-\x7e]+")
MASK: Final = "***"


class Change(StrEnum):
    MADE = "made"
    CHANGED = "changed"
    UNCHANGED = "unchanged"


def check(model: type[P], name: str, fields: Mapping[str, Any]) -> None:
    """Raise InvalidRegistration, with what to do, unless a row of that name can have the fields."""
    check_name(name)
    title, token = fields.get("title", ""), fields["token"]
    if len(title) > LONGEST or NUL in title:
        raise InvalidRegistration(f"The name must have {LONGEST} characters or fewer, no NUL.")
    if not (TOKEN.fullmatch(token) and len(token) <= LONGEST):
        raise InvalidRegistration(
            f"The token must be up to {LONGEST} ASCII letters, digits and signs, without spaces."
        )
    if model is Consumer and not is_absolute(fields["callback_url"]):
        raise InvalidRegistration("callbackUrl must be an absolute http or https URL.")
    if model is Consumer and _is_masked(fields["callback_url"]):
        raise InvalidRegistration(
            f"callbackUrl has {MASK}, as it is shown to who may not change it: write it out."
        )
    if model is Consumer and fields["type"] not in Consumer.Type.values:
        raise InvalidRegistration("type must be pull or push: leave it out for push.")
    if len(fields.get("retry_strategy", "")) > LONGEST:
        raise InvalidRegistration(
            f"The retry delays must have {LONGEST} characters or fewer, commas too: name fewer."
        )


def check_name(name: str) -> None:
    try:
        validate_name(name)
    except ValidationError as error:
        raise InvalidRegistration(error.message) from error


def masked(url: str) -> str:
    """For those who may not change it: a login and a query are secrets of whoever is called."""
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
    party: P
    change: Change


def put(
    model: type[P], key: Mapping[str, Any], decide: Callable[[P | None], Mapping[str, Any]]
) -> Registered[P]:
    """Make the row of this key, or change it under its lock.

    `decide` gets the row, or None where there is none, and returns the fields it shall have, the
    plain `token` among them; what it raises changes nothing, nor does InvalidRegistration. A row
    that is so already keeps its time of change.
    """
    check_name(key["name"])
    using = settings().DATABASE
    try:
        with transaction.atomic(using=using):
            return _put(using, model, key, decide)
    except IntegrityError:  # somebody made it at the same moment
        with transaction.atomic(using=using):
            return _put(using, model, key, decide)


def _put(
    using: str,
    model: type[P],
    key: Mapping[str, Any],
    decide: Callable[[P | None], Mapping[str, Any]],
) -> Registered[P]:
    found = model._default_manager.using(using).select_for_update().filter(**key).first()
    there = found is not None and getattr(found, "deleted_at", None) is None
    fields = dict(decide(found if there else None))
    check(model, key["name"], fields)
    party = found or model(**key)
    if not there:
        _reset(party)
    if not _changed(party, fields) and there:
        return Registered(party, Change.UNCHANGED)
    party.save(using=using)
    return Registered(party, Change.CHANGED if there else Change.MADE)


def _reset(party: Channel | Producer | Consumer) -> None:
    """A deleted one comes back as a new one: whoever had the name had settings of their own."""
    for field in party._meta.concrete_fields:
        if field.name not in KEPT:
            setattr(party, field.attname, field.get_default())


def _changed(party: Channel | Producer | Consumer, fields: dict[str, Any]) -> bool:
    """Set what differs; whether anything did."""
    token = fields.pop("token")
    differing = {name: value for name, value in fields.items() if getattr(party, name) != value}
    for name, value in differing.items():
        setattr(party, name, value)
    if party.has_token(token):
        return bool(differing)
    party.set_token(token)
    return True


def delete_consumer(
    channel: Channel, name: str, check: Callable[[Consumer | None], object]
) -> Stats | None:
    """Delete one that has no live jobs, under its lock; its jobs, if it has any: then it stays.

    `check` gets the row, or None where there is none; what it raises changes nothing. History names
    it, so its row is kept; its DEAD jobs go, in batches. Who was cut off amid them may go on: until
    the last is gone it is there to be deleted.
    """
    using = settings().DATABASE
    with transaction.atomic(using=using):
        rows = Consumer.objects.using(using).select_for_update()
        found = None if NUL in name else rows.filter(channel=channel, name=name).first()
        has = None if found is None else jobs.stats(using, found.pk, counts.CAP + 1)
        if found is None or has is None or _is_gone(found, has):
            check(None)
            return None
        check(found)
        if has.live:
            return has
        Consumer.objects.using(using).filter(pk=found.pk, deleted_at=None).update(deleted_at=Now())
    while dead.delete(using, found.pk, retries=0, job_id=None, limit=BATCH):
        pass
    return None


def _is_gone(consumer: Consumer, has: Stats) -> bool:
    """Deleted before, with all of its DEAD jobs; or with live ones, as only the admin does it."""
    return consumer.deleted_at is not None and bool(has.live or not has.dead)
