"""Groups of consumers that share limits, as code declares them."""

from collections.abc import Mapping
from typing import Any

from pulljobs.conf import settings
from pulljobs.errors import ConfigurationError
from pulljobs.models import LimitGroup, options

_declared: dict[str, dict[str, Any]] = {}


def limit_group(name: str, **limits: Any) -> str:
    """Declare a group of consumers that share limits, and return its name for `@handler`.

    `limits` are `rate`, `rate_burst`, `rate_window` and `max_in_flight`. They are used when the row
    of the group is created, and by `syncconsumers --update`. Limits that can't work, or others for
    a group that is declared already, raise ConfigurationError.
    """
    if problems := options.group_problems(name, limits):
        raise ConfigurationError(f"Limit group {name!r}: {' '.join(problems)}")
    if _declared.setdefault(name, limits) != limits:
        raise ConfigurationError(
            f"Limit group {name!r} is declared with {_declared[name]} and with {limits}: declare "
            "it once and pass its name to the other handlers."
        )
    return name


def declared() -> Mapping[str, Mapping[str, Any]]:
    """Return the limits of each group that `limit_group` has declared, by the name of the group."""
    return _declared


def row_fields(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a handler as fields of its consumer's row: the group as a row, not a name.

    A declared group is created if it is missing. Raise ConfigurationError for a group that is
    neither declared nor in the database.
    """
    name = defaults.get(options.GROUP)
    return dict(defaults) if name is None else {**defaults, options.GROUP: _find(name)}


def _find(name: str) -> LimitGroup:
    rows = LimitGroup.objects.using(settings().DATABASE)
    if name in _declared:
        rows.get_or_create(name=name, defaults=_declared[name])
    group = rows.filter(name=name).first()
    if group is None:
        raise ConfigurationError(
            f"There is no limit group {name!r}: declare it with pulljobs.limit_groups.limit_group, "
            "or create it in the admin."
        )
    return group
