from importlib import import_module
from importlib.util import find_spec

from django.apps import AppConfig
from django.conf import settings as django_settings
from django.utils.translation import gettext_lazy as _

from pulljobs.engine import adapters  # noqa: F401  registers them, before a connection is opened


class PulljobsConfig(AppConfig):
    name = "pulljobs"
    verbose_name = _("pull jobs")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from pulljobs import checks, deployment_checks, routers  # noqa: F401  registers their checks

        start_telemetry()
        if getattr(django_settings, "TASKS", None) and find_spec("django.tasks"):
            import_module("django.tasks")  # Django registers the check of task backends there.


def start_telemetry() -> None:
    """Start the recorders that the settings ask for, at the start of every process.

    The system checks report wrong settings. Here they only turn telemetry off.
    """
    from pulljobs import metrics
    from pulljobs.conf import settings
    from pulljobs.engine import tracing
    from pulljobs.errors import ConfigurationError

    try:
        wanted = settings()
    except ConfigurationError:
        return
    if wanted.METRICS and metrics.is_installed():
        from pulljobs.metrics import exposition

        exposition.start()
    tracing.switch(wanted.TRACING and tracing.is_installed())
