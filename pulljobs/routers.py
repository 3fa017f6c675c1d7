"""A router for projects whose jobs are in a database of their own: name it in DATABASE_ROUTERS."""

from typing import Any

from django.db.models import Model

from pulljobs.conf import settings

LABEL = "pulljobs"


class PulljobsRouter:
    """Sends pulljobs' models to PULLJOBS['DATABASE'], and migrates them there and nowhere else.

    Of all others it says nothing: they go where they would go without it.
    """

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        return settings().DATABASE if model._meta.app_label == LABEL else None

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return db == settings().DATABASE if app_label == LABEL else None
