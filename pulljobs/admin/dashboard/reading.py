"""Parts of the dashboard, such as workers or dead jobs, whose statements have a time limit.

A part that could not be read is missing on the page, and its name is shown.
"""

from datetime import timedelta
from typing import Final

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _

PATIENCE: Final = timedelta(seconds=2)
"""Time limit of one statement, so that the page also works while the database is slow."""


class Part(TextChoices):
    """Part of the dashboard, with its name in templates and its label in messages."""

    WORKERS = "workers", _("workers")
    CONSUMERS = "consumers", _("consumers")
    DEAD = "dead", _("dead jobs")
    TABLES = "tables", _("tables")
    SNAPSHOTS = "snapshots", _("snapshots")
    PARTITIONS = "partitions", _("partitions")
    SECTIONS = "sections", _("sections of other apps")
    THROUGHPUT = "throughput", _("throughput")
    HISTORY = "history", _("history")
