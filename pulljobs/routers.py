"""Router and system checks for projects that keep jobs in a database of their own.

Name `pulljobs.routers.PulljobsRouter` in DATABASE_ROUTERS.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import AppConfig, apps
from django.core.checks import CheckMessage, Error, Info, Warning, register
from django.db import DEFAULT_DB_ALIAS, connections, router
from django.db.models import Model

from pulljobs.conf import SETTING, WORKER_CHECKS, settings
from pulljobs.errors import ConfigurationError
from pulljobs.hooks import app_labels

HINT = "Put 'pulljobs.routers.PulljobsRouter' first in DATABASE_ROUTERS."


class PulljobsRouter:
    """Router that keeps pulljobs' models in PULLJOBS['DATABASE'], and migrates them only there.

    Models of other apps are left to the routers after it in DATABASE_ROUTERS.
    """

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        """Return PULLJOBS['DATABASE'] for pulljobs' models, and None for others."""
        return settings().DATABASE if model._meta.app_label in app_labels else None

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        """Return True for pulljobs' apps if `db` has the jobs, else False. None for other apps."""
        return db == settings().DATABASE if app_label in app_labels else None


@register(WORKER_CHECKS)
def check_routers(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Report DATABASE_ROUTERS that send pulljobs to other databases than PULLJOBS['DATABASE']."""
    using = _database()
    return [*_rows_elsewhere(using), *_tables_elsewhere(using)] if using else []


@register(WORKER_CHECKS)
def check_transactions(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Point out that jobs in another database do not commit together with the default database."""
    using = _database()
    if not using or using == DEFAULT_DB_ALIAS:
        return []
    return [
        Info(
            f"Jobs are in {using!r}: publishes, and settlements of transactional handlers, do not "
            f"commit together with writes to {DEFAULT_DB_ALIAS!r}.",
            hint="See the guide on a separate database, then silence this check.",
            id="pulljobs.I001",
        )
    ]


def _database() -> str:
    """Return PULLJOBS['DATABASE'], or an empty text if that is wrong: check_settings reports it."""
    try:
        using = settings().DATABASE
    except ConfigurationError:
        return ""
    return using if using in connections else ""


def _rows_elsewhere(using: str) -> Iterator[CheckMessage]:
    """Report that DATABASE_ROUTERS read or write models of pulljobs in another database."""
    models = [model for model in apps.get_models() if model._meta.app_label in app_labels]
    for access, routed in (("reads", router.db_for_read), ("writes", router.db_for_write)):
        elsewhere = sorted({alias for model in models if (alias := routed(model)) != using})
        if elsewhere:
            yield Error(
                f"DATABASE_ROUTERS send {access} of pulljobs' models to {', '.join(elsewhere)}, "
                f"but {SETTING}['DATABASE'] is {using!r}.",
                hint=HINT,
                id="pulljobs.E016",
            )


def _tables_elsewhere(using: str) -> Iterator[CheckMessage]:
    if not all(router.allow_migrate(using, label) for label in app_labels):
        yield Error(
            f"DATABASE_ROUTERS let no migration of pulljobs run in {using!r}, where "
            f"{SETTING}['DATABASE'] looks for its tables.",
            hint=HINT,
            id="pulljobs.E017",
        )
    others = [
        alias
        for alias in connections
        if alias not in (using, settings().LAKE_REPLICA)
        and any(router.allow_migrate(alias, label) for label in app_labels)
    ]
    if using != DEFAULT_DB_ALIAS and others:
        yield Warning(
            f"`migrate` makes tables of pulljobs in {', '.join(others)} as well, where no worker "
            "looks for jobs.",
            hint=HINT,
            id="pulljobs.W007",
        )
