"""Django app of the core: what it does when Django starts, and after `migrate`."""

import logging
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from django.apps import AppConfig
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.db.models.signals import post_migrate
from django.utils.translation import gettext_lazy as _

try:
    from pulljobs.engine import adapters  # noqa: F401  registers them, before a connection is opened
except ImportError as error:
    raise ImproperlyConfigured(
        f"pulljobs needs psycopg 3 with libpq, psycopg 2 is not enough ({error}). Run: "
        "python -m pip install 'psycopg[binary]>=3.2'"
    ) from error

logger = logging.getLogger("pulljobs")


class PulljobsConfig(AppConfig):
    name = "pulljobs"
    verbose_name = _("pull jobs")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from pulljobs import checks, deployment_checks, routers  # noqa: F401  registers their checks

        start_telemetry()
        if getattr(django_settings, "TASKS", None) and find_spec("django.tasks"):
            import_module("django.tasks")  # Django registers the check of task backends there.
        post_migrate.connect(create_declared, sender=self, dispatch_uid="pulljobs.declared")


def create_declared(*, using: str, **kwargs: Any) -> None:
    """Create the channels and consumers that handlers name, after `migrate` and `flush`.

    They have to exist before the first publish, also in the databases of tests. A failure is only
    logged: the migration itself is done, and workers create them at their start.
    """
    from django.db import DatabaseError, transaction

    from pulljobs import handlers
    from pulljobs.conf import settings
    from pulljobs.errors import ConfigurationError

    try:
        if using != settings().DATABASE:
            return
        handlers.autodiscover()
        with transaction.atomic(using=using):
            handlers.sync_consumers()
    except (ConfigurationError, DatabaseError, ImportError) as error:
        logger.warning("No channels and consumers were created for handlers: %s", error)


def start_telemetry() -> None:
    """Start metrics and tracing in this process, if the settings ask for them.

    Wrong settings turn both off, silently: the system checks report them.
    """
    from pulljobs import metrics
    from pulljobs.conf import settings
    from pulljobs.engine import tracing
    from pulljobs.errors import ConfigurationError

    try:
        conf = settings()
    except ConfigurationError:
        return
    if conf.METRICS and metrics.is_installed():
        from pulljobs.metrics import exposition

        exposition.start()
    tracing.switch(conf.TRACING and tracing.is_installed())
