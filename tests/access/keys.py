"""Keys that encrypt tokens (TOKEN_KEYS of the settings), for tests."""

from contextlib import AbstractContextManager

from cryptography.fernet import Fernet
from django.test import override_settings


def new_key() -> str:
    return Fernet.generate_key().decode()


def sealed_by(*keys: str) -> AbstractContextManager[object]:
    return override_settings(PULLJOBS={"TOKEN_KEYS": keys})
