"""Django app of schedules: what it adds to the core."""

from typing import Final

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from pulljobs import hooks

ROUTES: Final = (
    "schedule", "schedules", "schedule-backfill", "schedule-fire", "schedule-pause",
    "schedule-resume", "schedule-slots",
)  # fmt: skip
"""Names of the routes of the HTTP API."""


class SchedulesConfig(AppConfig):
    name = "pulljobs.schedules"
    label = "pulljobs_schedules"
    verbose_name = _("pull jobs: schedules")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from pulljobs.schedules import checks, sql  # noqa: F401  registers checks and statements

        hooks.app_labels.add(self.label)
        hooks.subcommands["schedules"] = "pulljobs.schedules.verbs"
        hooks.worker_loops["schedules"] = "pulljobs.schedules.loop:ScheduleLoop"
        hooks.counters["schedules"] = "pulljobs.schedules.metrics"
        hooks.gauges["schedules"] = "pulljobs.schedules.gauges"
        hooks.app_tables["pulljobs_schedule"] = "SELECT, INSERT, UPDATE, DELETE"
        hooks.app_tables["pulljobs_slot"] = "SELECT, INSERT, UPDATE, DELETE"
        hooks.add(hooks.doctor_checks, "pulljobs.schedules.doctor:check_schedules")
        hooks.add(hooks.dashboard_sections, "pulljobs.schedules.admin.dashboard:read_section")
        hooks.api_routes["schedules"] = "pulljobs.schedules.api.urls"
        hooks.add(hooks.api_operations, "pulljobs.schedules.api.operations:OPERATIONS")
        hooks.api_scopes.update(ROUTES)
        hooks.verifiers["slots of schedules"] = "pulljobs.schedules.verifying:verify_part"
        hooks.add(hooks.forgetters, "pulljobs.schedules.history:forget_slots")
