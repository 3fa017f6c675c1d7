"""What `manage.py check` says where PULLJOBS['DATABASE'] and DATABASE_ROUTERS disagree."""

from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import AppConfig, apps
from django.core.checks import CheckMessage, Error, Info, Warning, register
from django.db import DEFAULT_DB_ALIAS, connections, router

from pulljobs.conf import SETTING, settings
from pulljobs.errors import ConfigurationError
from pulljobs.routers import LABEL

HINT = "Put 'pulljobs.routers.PulljobsRouter' first in DATABASE_ROUTERS."


@register
def check_routers(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    using = _database()
    return [*_rows_elsewhere(using), *_tables_elsewhere(using)] if using else []


@register
def check_transactions(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    using = _database()
    if not using or using == DEFAULT_DB_ALIAS:
        return []
    return [
        Info(
            f"Jobs are in {using!r}: what publish() writes, and the end of a transactional handler,"
            f" is committed after or before what goes to {DEFAULT_DB_ALIAS!r}, not with it.",
            hint="The guide on databases tells what to do; then silence this.",
            id="pulljobs.I001",
        )
    ]


def _database() -> str:
    """Empty: it is wrong, as check_settings tells."""
    try:
        using = settings().DATABASE
    except ConfigurationError:
        return ""
    return using if using in connections else ""


def _rows_elsewhere(using: str) -> Iterator[CheckMessage]:
    """There is no table, or rows that no worker looks at; a replica is too late for a claim."""
    models = list(apps.get_app_config(LABEL).get_models())
    for what, routed in (("reads", router.db_for_read), ("writes", router.db_for_write)):
        elsewhere = sorted({alias for model in models if (alias := routed(model)) != using})
        if elsewhere:
            yield Error(
                f"DATABASE_ROUTERS send {what} of pulljobs' models to {', '.join(elsewhere)}, but "
                f"{SETTING}['DATABASE'] is {using!r}.",
                hint=HINT,
                id="pulljobs.E016",
            )


def _tables_elsewhere(using: str) -> Iterator[CheckMessage]:
    if not router.allow_migrate(using, LABEL):
        yield Error(
            f"DATABASE_ROUTERS let no migration of pulljobs run in {using!r}, where "
            f"{SETTING}['DATABASE'] looks for its tables.",
            hint=HINT,
            id="pulljobs.E017",
        )
    others = [one for one in connections if one != using and router.allow_migrate(one, LABEL)]
    if using != DEFAULT_DB_ALIAS and others:
        yield Warning(
            f"`migrate` makes tables of pulljobs in {', '.join(others)} as well, where no worker "
            "looks for jobs.",
            hint=HINT,
            id="pulljobs.W007",
        )
