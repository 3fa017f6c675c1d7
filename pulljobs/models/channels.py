"""Models of channels and producers, whose rows users may save through the ORM."""

from datetime import timedelta

from django.core.exceptions import ValidationError
from django.db import models
from django.utils.translation import gettext_lazy as _

from pulljobs.conf import settings
from pulljobs.errors import LONGEST_DELAY
from pulljobs.models.token_holders import TokenHolder

FROM_0 = _("It must be from 0 to 100 years.")
_NOT_KEPT = _(
    "It must not be above PULLJOBS['RETENTION']: client message ids are forgotten with their "
    "messages."
)
NOT_IN_HEADER = (
    "The id of a producer must fit into a header: without control characters, and without spaces "
    "at its ends."
)


def is_header_text(name: str) -> bool:
    """Return True if the value of an HTTP header can be this name, in UTF-8."""
    # Servers strip spaces and tabs at the ends of a value.
    return name == name.strip(" ") and not any(c < " " or c == "\x7f" for c in name)


class Channel(TokenHolder):
    """Named stream to which messages are published."""

    dedupe_window = models.DurationField(
        null=True, blank=True, help_text=_("How long a client message id stays taken.")
    )
    paused_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        permissions = [
            ("pause_channel", "Can pause channels and have them go on"),
            ("rotate_channel", "Can give channels a new token"),
        ]
        constraints = [models.UniqueConstraint(fields=["name"], name="pulljobs_channel_name")]

    def clean(self) -> None:
        super().clean()
        window, kept = self.dedupe_window, settings().RETENTION
        if window is not None and not timedelta() <= window <= LONGEST_DELAY:
            raise ValidationError({"dedupe_window": FROM_0})
        if window is not None and kept is not None and window > kept:
            raise ValidationError({"dedupe_window": _NOT_KEPT})


class Producer(TokenHolder):
    """Program that may publish over HTTP."""

    class Meta:
        permissions = [("rotate_producer", "Can give producers a new token")]
        constraints = [models.UniqueConstraint(fields=["name"], name="pulljobs_producer_name")]

    def clean(self) -> None:
        super().clean()
        if not is_header_text(self.name):
            raise ValidationError({"name": NOT_IN_HEADER})
