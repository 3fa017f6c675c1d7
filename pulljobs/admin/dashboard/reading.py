"""The parts of the page, and how long it waits for the database."""

from datetime import timedelta
from typing import Final

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _

PATIENCE: Final = timedelta(seconds=2)
"""For one statement: the page is for when the database is slow, too."""


class Part(TextChoices):
    """Of the page, as templates and people know it."""

    WORKERS = "workers", _("workers")
    CONSUMERS = "consumers", _("consumers")
    DEAD = "dead", _("dead jobs")
    TABLES = "tables", _("tables")
    SNAPSHOTS = "snapshots", _("snapshots")
    PARTITIONS = "partitions", _("partitions")
    THROUGHPUT = "throughput", _("throughput")
    HISTORY = "history", _("history")
