"""Tokens encrypted, so that they can be shown again and sent on to whom a job is pushed.

Nothing is ever compared with a sealed copy: who shows a token is known by its digest, and a copy
that does not match the digest is no copy. Without the package `cryptography` nothing is sealed.
"""

import base64
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from django.conf import settings as django_settings
from django.utils.encoding import force_bytes

from pulljobs.conf import settings

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

PURPOSE: Final = b"pulljobs: tokens of channels, producers and consumers"


def is_available() -> bool:
    return find_spec("cryptography") is not None


def seal(token: str) -> str:
    """By the newest key; empty where nothing can be sealed."""
    return keys()[0].encrypt(token.encode()).decode() if is_available() else ""


def unseal(sealed: str) -> str | None:
    """None: no copy, or no key of ours opens it."""
    if not sealed or not is_available():
        return None
    from cryptography.fernet import InvalidToken, MultiFernet

    try:
        return MultiFernet(keys()).decrypt(sealed.encode()).decode()
    except InvalidToken:
        return None


def is_newest(sealed: str) -> bool:
    """Whether the key that seals now has sealed it."""
    from cryptography.fernet import InvalidToken

    try:
        keys()[0].decrypt(sealed.encode())
    except InvalidToken:
        return False
    return True


def keys() -> "list[Fernet]":
    """The first one seals, all of them open; raise ValueError if a setting holds no key.

    Those derived from the project's secrets come last and stay, so that moving on to keys of one's
    own needs nothing but a rotation.
    """
    from cryptography.fernet import Fernet

    secrets = [django_settings.SECRET_KEY, *django_settings.SECRET_KEY_FALLBACKS]
    given: list[str | bytes] = [*settings().TOKEN_KEYS, *map(_derived, secrets)]
    return [Fernet(key) for key in given]


def _derived(secret: str | bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    derived = HKDF(SHA256(), length=32, salt=None, info=PURPOSE).derive(force_bytes(secret))
    return base64.urlsafe_b64encode(derived)
