"""Encryption of tokens, so that pages can show them again and push delivery can send them.

Authentication never uses an encrypted copy: a token is compared with its digest, and a copy that
does not match the digest is ignored. Without the package `cryptography` nothing is encrypted.
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
    """Encrypt a token with the newest key. Return an empty text if nothing can be encrypted."""
    return keys()[0].encrypt(token.encode()).decode() if is_available() else ""


def unseal(sealed: str) -> str | None:
    """Decrypt a copy. Return None if it is empty or no key decrypts it."""
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
    """Return the keys: the first one encrypts, all of them decrypt.

    Keys derived from the project's secrets come last, so that a project can move on to keys of its
    own with nothing but a rotation. Raises ValueError if `TOKEN_KEYS` has a text that is no key.
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
