"""Base of the models whose tokens authenticate HTTP requests: channel, producer, consumer."""

import hashlib
import hmac
import secrets
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models
from django.utils.translation import gettext_lazy as _

from pulljobs import encryption
from pulljobs.engine.validation import encodable
from pulljobs.models.fields import ChangedAtField

_TOKEN_BYTES = 24
_LONGEST_NAME = 255


def digest(token: str) -> str:
    """Return the SHA-256 digest of a token, by which requests are authenticated."""
    return hashlib.sha256(token.encode()).hexdigest()


def validate_name(name: Any) -> None:
    """Raise ValidationError unless a channel, consumer or limit group may have this name.

    URLs and paths such as `channel/consumer` must be able to contain it.
    """
    is_text = isinstance(name, str) and encodable(name)
    if not is_text or not 0 < len(name) <= _LONGEST_NAME or "/" in name:
        raise ValidationError(
            f"The id must have 1 to {_LONGEST_NAME} characters, without slashes and NUL."
        )
    if name in (".", ".."):
        raise ValidationError(f"The id must not be {name!r}, which paths of URLs resolve.")


class TokenHolder(models.Model):
    """Abstract model with a name, and a token that authenticates HTTP requests."""

    name = models.CharField(max_length=_LONGEST_NAME, help_text=_("The id that URLs and code use."))
    title = models.CharField(max_length=255, blank=True)
    token_digest = models.CharField(max_length=64, editable=False)
    token_sealed = models.TextField(blank=True, default="", db_default="", editable=False)
    """Encrypted token, for pages that show it again and for push delivery, or empty for none."""
    created_at = models.DateTimeField(auto_now_add=True)
    changed_at = ChangedAtField(editable=False)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self.token_digest:
            self.set_token()
        super().save(*args, **kwargs)

    @property
    def path(self) -> str:
        """Name by which commands and pages refer to the row."""
        return self.name

    def describe(self) -> str:
        """Return what the row is and its path, such as "consumer orders/invoicing"."""
        return f"{self._meta.verbose_name} {self.path}"

    def clean(self) -> None:
        super().clean()
        if self.name:
            try:
                validate_name(self.name)
            except ValidationError as error:
                raise ValidationError({"name": error}) from error

    def set_token(self, token: str = "") -> str:
        """Set the token, or a random one by default, without saving the row, and return it."""
        token = token or secrets.token_urlsafe(_TOKEN_BYTES)
        self.token_digest = digest(token)
        self.token_sealed = encryption.seal(token)
        return token

    def shown_token(self) -> str | None:
        """Return the token for a page that shows it, or None if no copy can be decrypted."""
        token = encryption.unseal(self.token_sealed)
        return token if token is not None and self.has_token(token) else None

    def has_token(self, token: str) -> bool:
        """Return True if `token` is the token of this row, compared in constant time."""
        return hmac.compare_digest(self.token_digest, digest(token))
