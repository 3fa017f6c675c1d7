"""Fields that a channel, a producer or a consumer is PUT with."""

import re
from typing import Any, Final
from urllib.parse import urlsplit

from django.http import QueryDict
from django.utils.crypto import get_random_string

from pulljobs.api import exceptions
from pulljobs.models import Consumer

LONGEST: Final = 255
LONGEST_URL: Final = 2_000
RANDOM_TOKEN: Final = 12
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")


def party(form: QueryDict, id: str) -> dict[str, Any]:
    """Whatever is left out is set, too: a random token, the id as the name."""
    token, title = form.get("token", ""), form.get("name", "")
    if token and not (_TOKEN.fullmatch(token) and len(token) <= LONGEST):
        raise exceptions.bad_field(
            f"token must be up to {LONGEST} ASCII letters, digits and signs, without spaces."
        )
    check_text("name", title)
    return {
        "title": "" if title == id else title,
        "token": token or get_random_string(RANDOM_TOKEN),
    }


def check_text(word: str, text: str) -> None:
    if len(text) > LONGEST or "\x00" in text:
        raise exceptions.bad_field(f"{word} must have {LONGEST} characters or fewer, no NUL.")


def consumer(form: QueryDict) -> dict[str, Any]:
    """The callback URL is required of pull consumers, too; without a type it is push."""
    url, type = form.get("callbackUrl", ""), form.get("type", "") or Consumer.Type.PUSH.value
    if not is_absolute(url):
        raise exceptions.bad_field("callbackUrl must be an absolute http or https URL.")
    if type not in Consumer.Type.values:
        raise exceptions.bad_field("type must be pull or push: leave it out for push.")
    return {"callback_url": url, "type": type}


def is_absolute(url: str) -> bool:
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return known and len(url) <= LONGEST_URL and url.isprintable() and " " not in url
