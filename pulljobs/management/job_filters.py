"""Filters of jobs by consumer, key, age, state and reason, and ids, as arguments of verbs."""

from argparse import ArgumentParser
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from pulljobs import ids
from pulljobs.conf import settings
from pulljobs.errors import ConfigurationError
from pulljobs.management import lookups
from pulljobs.management.parsing import parse_duration
from pulljobs.states import Reason
from pulljobs.storage import nodes
from pulljobs.storage.selecting import Selection


def add_filters(parser: ArgumentParser, *, has_reason: bool) -> None:
    """Add the filters by consumer, key and age to a parser.

    With `has_reason`, also add the filter by the reason for which jobs are DEAD.
    """
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="CHANNEL[/CONSUMER]", help="only their jobs"
    )
    parser.add_argument("--key", help="only jobs with this key")
    for flag, meaning in (("--older-than", "or earlier"), ("--newer-than", "or later")):
        parser.add_argument(
            flag,
            type=parse_duration,
            metavar="TIME",
            help=f"only jobs created that long ago {meaning}, such as 30d",
        )
    if has_reason:
        parser.add_argument(
            "--reason", choices=[reason.value for reason in Reason], metavar="REASON",
            help=f"only jobs that died of this: {', '.join(Reason)}",
        )  # fmt: skip


def select(options: dict[str, Any], states: tuple[str, ...]) -> tuple[Selection, str]:
    """Return the selection of jobs that the options make, and a text that names it.

    Without ids and `--state` it has jobs in `states`. Raise ConfigurationError for an unknown name,
    for ids combined with filters, and if a verb with `--all` gets neither that nor ids nor filters.
    """
    if given := options.get("jobs"):
        return _chosen(options, given)
    consumers = lookups.find_consumers(options["only"])
    if options["only"] and not consumers:
        raise ConfigurationError("These channels have no consumers: name others with --only.")
    filters = {
        name: FILTERS[name](options[name])
        for name in FILTERS
        if options.get(name) not in (None, [])
    }
    if not (consumers or filters or options.get("all", True)):
        raise ConfigurationError("Name jobs or a filter, or use --all for all consumers.")
    selection = Selection(states=states)
    if consumers:
        selection = selection._replace(consumer_ids=tuple(row.pk for row in consumers))
    for change, _text in filters.values():
        selection = selection._replace(**change)
    of = (
        f"of {', '.join(consumer.path for consumer in consumers)}"
        if consumers
        else "of all consumers"
    )
    return selection, " ".join([of, *(text for _change, text in filters.values())])


FILTERS: Final[dict[str, Callable[[Any], tuple[dict[str, Any], str]]]] = {
    "state": lambda states: ({"states": tuple(states)}, f"that are {' or '.join(states)}"),
    "reason": lambda reason: ({"reason": reason}, f"that died of {reason}"),
    "key": lambda key: ({"key": key}, f"with the key {key}"),
    "older_than": lambda age: ({"last": _id_at(age)}, f"older than {age}"),
    "newer_than": lambda age: ({"first": _id_at(age)}, f"newer than {age}"),
}
"""Fields of the selection and words for the description, by the name of an option."""


def _chosen(options: dict[str, Any], given: list[str]) -> tuple[Selection, str]:
    if any(options.get(name) for name in (*FILTERS, "only", "all")):
        raise ConfigurationError("Ids of jobs and filters can't be combined: give one of them.")
    try:
        among = tuple(sorted({ids.number_of(text) for text in given}))
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    more = " ..." if among[3:] else ""
    return Selection(among=among), f"by id: {', '.join(map(ids.encode, among[:3]))}{more}"


def _id_at(age: timedelta) -> int:
    return ids.first_of(nodes.clock(settings().DATABASE) - age)
