"""Django app of the lake: what it adds to the core."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from pulljobs import hooks


class LakeConfig(AppConfig):
    name = "pulljobs.lake"
    label = "pulljobs_lake"
    verbose_name = _("pull jobs: lake")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        import pulljobs.lake.sql  # noqa: F401  adds the statements
        from pulljobs.lake.grants import ROLE

        hooks.app_labels.add(self.label)
        hooks.subcommands["lake"] = "pulljobs.lake.verbs"
        hooks.add(hooks.history_keepers, "pulljobs.lake.verified_days:KEEPER")
        hooks.add(hooks.ranges, "pulljobs.lake.history:RANGES")
        hooks.gauges["lake"] = "pulljobs.lake.gauges"
        hooks.roles["lake"] = ROLE
        hooks.statements["verify_messages"] = "verify_published"
