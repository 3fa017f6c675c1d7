"""Encryption of tokens, so that pages can show them again and push delivery can send them.

A row has the digest of its token and an encrypted copy. Authentication only uses the digest, and a
copy that does not match the digest is ignored. Without the package `cryptography` there are no
copies.
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
    """Return True if the package `cryptography` is installed."""
    return find_spec("cryptography") is not None


def seal(token: str) -> str:
    """Encrypt a token with the newest key. Return an empty text if `cryptography` is missing."""
    return keys()[0].encrypt(token.encode()).decode() if is_available() else ""


def unseal(sealed: str) -> str | None:
    """Return the token of an encrypted copy, or None if it is empty or can't be decrypted."""
    if not sealed or not is_available():
        return None
    from cryptography.fernet import InvalidToken, MultiFernet

    try:
        return MultiFernet(keys()).decrypt(sealed.encode()).decode()
    except InvalidToken:
        return None


def is_newest(sealed: str) -> bool:
    """Return True if the newest key encrypted the copy."""
    from cryptography.fernet import InvalidToken

    try:
        keys()[0].decrypt(sealed.encode())
    except InvalidToken:
        return False
    return True


def keys() -> "list[Fernet]":
    """Return the keys, the newest first: that key encrypts, all of them decrypt.

    Those of `TOKEN_KEYS` are followed by keys derived from SECRET_KEY and its fallbacks. So copies
    from before the first `TOKEN_KEYS` stay readable. Raise ValueError if `TOKEN_KEYS` has a text
    that is no key.
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
