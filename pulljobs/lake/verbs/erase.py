"""Erase the contents of messages from the lake and from PostgreSQL, for the right to erasure.

    lake erase --key customer-17
    lake erase --message d3k2v1g0000a1b2c3d4g
    lake erase --where "channel = 'orders' AND published_at < '2026-01-01'"

Payload, key, headers and message id are erased, and the errors and results of the jobs. The rows
stay, so that `verify` accounts for them. Export first: --where reads the lake's table of messages.
Without --keep-files the old files go at once, and with them older versions of the tables. Messages
that a job still needs are left unchanged: finish or delete these jobs first.
"""

from argparse import ArgumentParser
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pulljobs import ids
from pulljobs.conf import settings
from pulljobs.errors import ConfigurationError
from pulljobs.management.subcommands import EXIT_OK, EXIT_PROBLEM, CommandResult

if TYPE_CHECKING:
    from pulljobs.lake.spark.erasing import Erased


def add_arguments(parser: ArgumentParser) -> None:
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--key", help="erase the messages with this key")
    chosen.add_argument("--message", metavar="ID", help="erase this message")
    chosen.add_argument("--where", metavar="SQL", help="predicate over the lake's messages")
    parser.add_argument(
        "--keep-files", action="store_true", help="leave the old files to the next `vacuum`"
    )


def handle(**options: Any) -> CommandResult:
    from pulljobs.lake.spark import erasing, tables

    choice = erasing.ErasureOptions(
        key=options["key"], message_id=_parse_id(options["message"]), where=options["where"]
    )
    erased = erasing.erase(
        settings().DATABASE, tables.location(), choice, vacuums=not options["keep_files"]
    )
    code = EXIT_PROBLEM if erased.needed else EXIT_OK
    return CommandResult(asdict(erased), _lines(erased, options["keep_files"]), code)


def _parse_id(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return ids.decode(text)
    except ValueError as error:
        raise ConfigurationError(f"--message: {error}") from error


def _lines(erased: "Erased", keeps_files: bool) -> list[str]:
    lines = [
        f"erased: {erased.messages:,} messages; "
        f"{erased.settlements:,} settlements in the database had an error or a result"
    ]
    if keeps_files:
        lines.append("Old files still have the contents: run `lake vacuum --older-than 0`.")
    else:
        lines.append(f"{erased.files:,} old files were removed")
    if erased.needed:
        some = ", ".join(map(ids.encode, erased.needed[:10]))
        lines.append(f"{len(erased.needed):,} were left, because a job needs them: {some}")
    return lines
