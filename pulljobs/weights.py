"""Weights of the keys of a consumer with `fair_by_key`: how many jobs a turn of a key claims.

A key without a weight has weight 1. A weight stays when the key has no jobs, and counts from the
next turn of the key.
"""

from typing import Final

from pulljobs.conf import settings
from pulljobs.engine.validation import encodable
from pulljobs.errors import InvalidRegistration
from pulljobs.models import Consumer, FlowKey
from pulljobs.models.row_arguments import check_row
from pulljobs.storage import turns

MOST: Final = 1_000
LONGEST_KEY: Final = 255


def set_weight(consumer: Consumer, key: str, weight: int) -> None:
    """Set the weight of a key, from 1 to 1000. Jobs without a key have the key `""`.

    This joins the caller's transaction. Raise InvalidRegistration if the key or weight is invalid.
    """
    check_row(consumer, Consumer)
    if type(weight) is not int or not 1 <= weight <= MOST:
        raise InvalidRegistration(f"The weight must be from 1 to {MOST}, not {weight!r}.")
    if not isinstance(key, str) or len(key) > LONGEST_KEY or not encodable(key):
        raise InvalidRegistration(
            f"The key must be text of {LONGEST_KEY} characters or fewer, without NUL and half a "
            f'surrogate pair, and "" for jobs without a key: not {str(key)[:20]!r}.'
        )
    turns.set_weight(settings().DATABASE, consumer.pk, key, weight)


def read_weights(
    consumer: Consumer, *, after: str | None = None, most: int | None = None
) -> dict[str, int]:
    """Return the weights other than 1 by key, in the order of the keys.

    `most` is the largest number to return. `after` is a key: only keys behind it are returned.
    """
    check_row(consumer, Consumer)
    rows = FlowKey.objects.using(settings().DATABASE).filter(consumer_id=consumer.pk)
    if after is not None:
        rows = rows.filter(key__gt=after)
    return dict(rows.exclude(weight=1).order_by("key").values_list("key", "weight")[:most])
