from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from pulljobs import hooks


class SchedulesConfig(AppConfig):
    name = "pulljobs.schedules"
    label = "pulljobs_schedules"
    verbose_name = _("pull jobs: schedules")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        import pulljobs.schedules.sql  # noqa: F401  adds the statements

        hooks.app_labels.add(self.label)
        hooks.subcommands["schedules"] = "pulljobs.schedules.verbs"
        hooks.worker_loops["schedules"] = "pulljobs.schedules.loop:ScheduleLoop"
        hooks.app_tables["pulljobs_schedule"] = "SELECT, INSERT, UPDATE, DELETE"
        hooks.app_tables["pulljobs_slot"] = "SELECT, INSERT, UPDATE, DELETE"
        hooks.doctor_checks.append("pulljobs.schedules.doctor:check_schedules")
        hooks.dashboard_sections.append("pulljobs.schedules.admin.dashboard:read_section")
        hooks.forgetters.append("pulljobs.schedules.history:forget_slots")
