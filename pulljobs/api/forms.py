"""Fields that a channel, a producer or a consumer is PUT with; registering checks them."""

from typing import Any, Final

from django.http import QueryDict
from django.utils.crypto import get_random_string

from pulljobs.models import Consumer

RANDOM_TOKEN: Final = 12


def party(form: QueryDict, id: str) -> dict[str, Any]:
    """Whatever is left out is set, too: a random token, the id as the name."""
    title = form.get("name", "")
    return {
        "title": "" if title == id else title,
        "token": form.get("token", "") or get_random_string(RANDOM_TOKEN),
    }


def consumer(form: QueryDict) -> dict[str, Any]:
    """The callback URL is required of pull consumers, too; without a type it is push."""
    return {
        "callback_url": form.get("callbackUrl", ""),
        "type": form.get("type", "") or Consumer.Type.PUSH.value,
    }
