"""The sealed copies of tokens and signing secrets, kept under the newest key."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from pulljobs import encryption
from pulljobs.conf import settings
from pulljobs.models import Channel, Consumer, Producer
from pulljobs.models.registry import Party

STEP: Final = 500


class Rotation(NamedTuple):
    resealed: int
    kept: int
    """Under the newest key already."""
    unreadable: list[str]
    """No key opens them: who bears them is known still, but can't be shown them nor sent them."""
    without_copy: int


class Copy(NamedTuple):
    party: Party
    column: str
    text: str | None
    """None: no key opens it."""

    @property
    def sealed(self) -> str:
        return str(getattr(self.party, self.column))


def rotate() -> Rotation:
    """Seal every copy with the newest key; whoever is given a new token meanwhile keeps it."""
    resealed, kept, without_copy = 0, 0, 0
    unreadable: list[str] = []
    for copy in _copies():
        if not copy.sealed:
            without_copy += 1
        elif copy.text is None:
            unreadable.append(_words(copy.party))
        elif encryption.is_newest(copy.sealed):
            kept += 1
        else:
            resealed += _reseal(copy, copy.text)
    return Rotation(resealed, kept, unreadable, without_copy)


def _copies() -> Iterator[Copy]:
    """Of all tokens, and of the secrets by which deliveries are signed, where there are some."""
    for party in _parties():
        yield Copy(party, "token_sealed", party.shown_token())
        if isinstance(party, Consumer) and (secrets := party.signing_secrets_sealed):
            yield Copy(party, "signing_secrets_sealed", encryption.unseal(secrets))


def _parties() -> Iterator[Party]:
    using = settings().DATABASE
    yield from Channel.objects.using(using).order_by("pk").iterator(chunk_size=STEP)
    yield from Producer.objects.using(using).order_by("pk").iterator(chunk_size=STEP)
    consumers = Consumer.objects.using(using).select_related("channel")
    yield from consumers.order_by("pk").iterator(chunk_size=STEP)


def _reseal(copy: Copy, text: str) -> int:
    """Only what was read, and nothing else of the row, not even when it changed."""
    rows = type(copy.party)._default_manager.using(settings().DATABASE)
    same = rows.filter(pk=copy.party.pk, **{copy.column: copy.sealed})
    return same.update(**{copy.column: encryption.seal(text)})


def _words(party: Party) -> str:
    channel = f"{party.channel.name}/" if isinstance(party, Consumer) else ""
    return f"{party._meta.verbose_name} {channel}{party.name}"
