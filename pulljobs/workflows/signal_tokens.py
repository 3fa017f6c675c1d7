"""One-time tokens: each lets its bearer send one signal to one run over HTTP."""

import hashlib
import secrets
from datetime import timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models.functions import Now

from pulljobs.conf import settings
from pulljobs.errors import WorkflowError
from pulljobs.storage.forgetting import forget
from pulljobs.workflows import signals
from pulljobs.workflows.models import SignalToken
from pulljobs.workflows.replay import check_name

LASTS: Final = timedelta(days=7)


def create_signal_token(run_id: int | str, name: str, *, lasts: timedelta = LASTS) -> str:
    """Return a one-time token with which anyone can send a signal to a run over HTTP.

    Join the caller's transaction. The token lets its bearer send the signal `name` once until
    `lasts` has passed. Only its digest is stored, so the token can't be shown again. Raise
    UnknownRun, RunEnded, and ValueError for a wrong `name` or `lasts`.
    """
    check_name(name)
    if not isinstance(lasts, timedelta) or not timedelta() < lasts <= timedelta(days=3_650):
        raise ValueError(
            f"lasts must be a timedelta, positive and at most ten years, not {lasts!r}."
        )
    token = secrets.token_urlsafe(32)
    SignalToken.objects.using(settings().DATABASE).create(
        digest=_digest(token), run_id=signals.find_live(run_id), name=name, expires_at=Now() + lasts
    )
    return token


def send(token: str, payload: Any) -> bool:
    """Send the signal of a token, use up the token, and return True.

    Raise what `signal` raises, and WorkflowError for a token that is wrong, used or expired.
    """
    using = settings().DATABASE
    with transaction.atomic(using=using):
        rows = SignalToken.objects.using(using).filter(digest=_digest(token))
        valid = rows.filter(used_at=None, expires_at__gt=Now())
        row = valid.select_for_update().first()
        if row is None:
            raise WorkflowError(
                "This token is wrong, used or expired: ask the sender for another one."
            )
        SignalToken.objects.using(using).filter(pk=row.pk).update(used_at=Now())
        return signals.signal(row.run_id, row.name, payload)


def forget_tokens(using: str, age: timedelta) -> int:
    """Delete some tokens that expired longer than `age` ago, and return their number."""
    return forget(SignalToken.objects.using(using).filter(expires_at__lt=Now() - age))


def _digest(token: str) -> str:
    """Return the SHA-256 digest of a token. A token has 256 random bits, so it needs no salt."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
