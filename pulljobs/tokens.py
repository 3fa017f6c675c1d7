"""Rotation of the keys that encrypt tokens and signing secrets."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from pulljobs import encryption
from pulljobs.conf import settings
from pulljobs.models import Channel, Consumer, Producer
from pulljobs.models.token_holders import TokenHolder

STEP: Final = 500


class Rotation(NamedTuple):
    """Numbers of tokens and signing secrets by what `rotate` did to their encrypted copies."""

    resealed: int
    """Copies that the rotation has encrypted again, with the newest key."""
    kept: int
    """Copies that the newest key had encrypted already."""
    unreadable: list[str]
    """Names whose copy no key decrypts: their token still works, but it can't be shown or sent."""
    without_copy: int
    """Tokens of which there is only a digest."""


class _Copy(NamedTuple):
    token_holder: TokenHolder
    column: str
    text: str | None
    """Decrypted text, or None if no key decrypts it."""

    @property
    def sealed(self) -> str:
        return str(getattr(self.token_holder, self.column))


def rotate() -> Rotation:
    """Encrypt the copies of all tokens and signing secrets with the newest key.

    A token that another process sets in the meantime stays.
    """
    resealed, kept, without_copy = 0, 0, 0
    unreadable: list[str] = []
    for copy in _copies():
        if not copy.sealed:
            without_copy += 1
        elif copy.text is None:
            unreadable.append(copy.token_holder.describe())
        elif encryption.is_newest(copy.sealed):
            kept += 1
        else:
            resealed += _reseal(copy, copy.text)
    return Rotation(resealed, kept, unreadable, without_copy)


def _copies() -> Iterator[_Copy]:
    """Yield the encrypted copies of all tokens, and of the signing secrets of push consumers."""
    for token_holder in _read_token_holders():
        yield _Copy(token_holder, "token_sealed", token_holder.shown_token())
        if isinstance(token_holder, Consumer) and (secrets := token_holder.signing_secrets_sealed):
            yield _Copy(token_holder, "signing_secrets_sealed", encryption.unseal(secrets))


def _read_token_holders() -> Iterator[TokenHolder]:
    using = settings().DATABASE
    yield from Channel.objects.using(using).order_by("pk").iterator(chunk_size=STEP)
    yield from Producer.objects.using(using).order_by("pk").iterator(chunk_size=STEP)
    consumers = Consumer.objects.using(using).select_related("channel")
    yield from consumers.order_by("pk").iterator(chunk_size=STEP)


def _reseal(copy: _Copy, text: str) -> int:
    """Store a token or secret, encrypted with the newest key. Return the number of written rows.

    It is 0 if the row has another copy by now. The `changed_at` of the row stays as it is.
    """
    rows = type(copy.token_holder)._default_manager.using(settings().DATABASE)
    same = rows.filter(pk=copy.token_holder.pk, **{copy.column: copy.sealed})
    return same.update(**{copy.column: encryption.seal(text)})
