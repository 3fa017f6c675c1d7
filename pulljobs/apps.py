from importlib import import_module
from importlib.util import find_spec

from django.apps import AppConfig
from django.conf import settings
from django.utils.translation import gettext_lazy as _


class PulljobsConfig(AppConfig):
    name = "pulljobs"
    verbose_name = _("pull jobs")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from pulljobs import checks, observing, router_checks  # noqa: F401  registers them

        observing.begin()
        if getattr(settings, "TASKS", None) and find_spec("django.tasks"):
            import_module("django.tasks")  # It registers the check of backends; nobody else may.
