"""Django app of the lake: what it adds to the core."""

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error, register
from django.utils.translation import gettext_lazy as _

from pulljobs import hooks
from pulljobs.conf import WORKER_CHECKS, settings
from pulljobs.errors import ConfigurationError
from pulljobs.lake.locations import normalize_location


@register(WORKER_CHECKS)
def check_location(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Report a setting LAKE that names neither a directory nor a URL of a known scheme."""
    try:
        lake = settings().LAKE
    except ConfigurationError:
        return []  # The check of the settings reports that.
    try:
        normalize_location(lake)
    except ConfigurationError as error:
        return [Error(str(error), id="pulljobs.E038")]
    return []


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
