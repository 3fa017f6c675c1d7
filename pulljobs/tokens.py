"""The sealed copies of tokens, kept under the newest key."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from pulljobs import sealing
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


def rotate() -> Rotation:
    """Seal every copy with the newest key; whoever is given a new token meanwhile keeps it."""
    resealed, kept, without_copy = 0, 0, 0
    unreadable: list[str] = []
    for party in _parties():
        token = party.shown_token()
        if not party.token_sealed:
            without_copy += 1
        elif token is None:
            unreadable.append(_words(party))
        elif sealing.is_newest(party.token_sealed):
            kept += 1
        else:
            resealed += _reseal(party, token)
    return Rotation(resealed, kept, unreadable, without_copy)


def _parties() -> Iterator[Party]:
    using = settings().DATABASE
    yield from Channel.objects.using(using).order_by("pk").iterator(chunk_size=STEP)
    yield from Producer.objects.using(using).order_by("pk").iterator(chunk_size=STEP)
    consumers = Consumer.objects.using(using).select_related("channel")
    yield from consumers.order_by("pk").iterator(chunk_size=STEP)


def _reseal(party: Party, token: str) -> int:
    """Only the copy that was read, and nothing else of the row, not even when it changed."""
    same = (
        type(party)
        ._default_manager.using(settings().DATABASE)
        .filter(pk=party.pk, token_sealed=party.token_sealed)
    )
    return same.update(token_sealed=sealing.seal(token))


def _words(party: Party) -> str:
    channel = f"{party.channel.name}/" if isinstance(party, Consumer) else ""
    return f"{party._meta.verbose_name} {channel}{party.name}"
