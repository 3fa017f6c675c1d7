from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from pulljobs import hooks


class WorkflowsConfig(AppConfig):
    name = "pulljobs.workflows"
    label = "pulljobs_workflows"
    verbose_name = _("pull jobs: batches and workflows")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from pulljobs.workflows import sql  # noqa: F401  registers statements

        hooks.app_labels.add(self.label)
        _extend_by_batches()


def _extend_by_batches() -> None:
    hooks.app_tables["pulljobs_batch"] = "SELECT, INSERT, UPDATE, DELETE"
    hooks.app_tables["pulljobs_batch_part"] = "SELECT, INSERT, DELETE"
