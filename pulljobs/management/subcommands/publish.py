"""Publish messages on a channel, by the rules of `pulljobs.publishing.publish`.

    publish orders '{"order": 7}' --key customer-12
    publish orders --file order.json --delay 5m
    publish orders --file orders.jsonl --lines

Without --content-type, JSON objects and arrays are sent as JSON, other text as text, and the rest
as bytes. Messages have no producer unless --producer names one. With --lines, every line that is
not empty is a message. An invalid line prevents all of them. A line that a full key refuses is left
out, and the exit code is 1.
"""

import json
import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from pulljobs import ids
from pulljobs.conf import settings
from pulljobs.engine.validation import BYTES, JSON, TEXT
from pulljobs.errors import ConfigurationError
from pulljobs.management import lookups
from pulljobs.management.output_blocks import Block, Cell, FactsBlock, StyledText, Tone
from pulljobs.management.parsing import parse_duration, parse_pair, parse_time
from pulljobs.management.subcommands import EXIT_OK, EXIT_PROBLEM, CommandResult
from pulljobs.progress import count_items, show_progress
from pulljobs.publishing import Draft, Receipt, encoded, publish, publish_many


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("channel", metavar="CHANNEL", help="name of the channel")
    parser.add_argument("payload", nargs="?", metavar="PAYLOAD", help="text, or - for stdin")
    parser.add_argument("--file", type=Path, help="file with the payload")
    parser.add_argument(
        "--lines",
        action="store_true",
        help="publish each line of the file or of stdin as a message",
    )
    parser.add_argument(
        "--content-type", metavar="TYPE", help="content type, such as application/json"
    )
    parser.add_argument(
        "--header", type=parse_pair, action="append", default=[], metavar="NAME=VALUE",
        help="header of the message, may be repeated",
    )  # fmt: skip
    parser.add_argument("--key", help="key, for consumers with an order or a limit by key")
    parser.add_argument(
        "--priority",
        type=int,
        default=0,
        help="priority from -32768 to 32767, the highest first (0)",
    )
    parser.add_argument(
        "--cost", type=int, default=1, help="tokens of a rate that each job takes (1)"
    )
    parser.add_argument(
        "--delay", type=parse_duration, metavar="TIME", help="delay until it is due: 90, 5m, 2h"
    )
    parser.add_argument(
        "--at", type=parse_time, metavar="TIME", help="time at which it is due: 2027-01-31T08:00Z"
    )
    parser.add_argument(
        "--message-id",
        metavar="ID",
        help="id for which the message is published once within the dedupe window",
    )
    parser.add_argument("--producer", metavar="NAME", help="producer of the message")


def handle(**options: Any) -> CommandResult:
    _check(options)
    producer = lookups.find_producer(options["producer"]) if options["producer"] else None
    if not options["lines"]:
        fields = _fields(_read_payload(options), options)
        return _result(publish(options["channel"], **fields, producer=producer))
    with _open_source(options) as lines, show_progress("publish", "messages") as progress:
        drafts = (Draft(**_fields(line, options)) for line in _nonempty(lines))
        counted = count_items(drafts, progress)
        receipts = publish_many(options["channel"], counted, producer=producer)
    return _result_of_lines(receipts)


def _check(options: dict[str, Any]) -> None:
    if options["file"] is not None and options["payload"] is not None:
        raise ConfigurationError("A payload and --file cannot be combined: give one of them.")
    if options["lines"] and options["payload"] not in (None, "-"):
        raise ConfigurationError("--lines is for --file or stdin, not for a payload argument.")
    if options["lines"] and options["message_id"]:
        raise ConfigurationError("--message-id is for one message: leave it out with --lines.")
    if options["delay"] is not None and options["at"] is not None:
        raise ConfigurationError("--delay and --at cannot be combined: give one of them.")
    if _is_piped(options) and sys.stdin.isatty():
        raise ConfigurationError(
            "The payload is missing: give text or --file, or pipe it to stdin."
        )


def _is_piped(options: dict[str, Any]) -> bool:
    return options["file"] is None and options["payload"] in (None, "-")


@contextmanager
def _open_source(options: dict[str, Any]) -> Iterator[IO[bytes]]:
    if options["file"] is None:
        yield sys.stdin.buffer
        return
    try:
        source = options["file"].open("rb")
    except OSError as error:
        raise ConfigurationError(f"{options['file']} can't be read: {error.strerror}.") from error
    with source:
        yield source


def _read_payload(options: dict[str, Any]) -> bytes:
    if options["payload"] not in (None, "-"):
        return encoded(options["payload"])[0]
    with _open_source(options) as source:
        # A payload that is too large is refused without reading all of it.
        payload = source.read(settings().MAX_PAYLOAD_BYTES + 1)
    if not payload and options["payload"] is None and options["file"] is None:
        raise ConfigurationError(
            "The payload on stdin is empty: use '' to publish an empty message."
        )
    return payload


def _nonempty(lines: Iterable[bytes]) -> Iterator[bytes]:
    return filter(None, (line.rstrip(b"\r\n") for line in lines))


def _fields(payload: bytes, options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `publishing.publish` for a payload and the options of the verb."""
    return {
        "payload": payload,
        "key": options["key"],
        "priority": options["priority"],
        "cost": options["cost"],
        "message_id": options["message_id"],
        "headers": dict(options["header"]),
        "content_type": options["content_type"] or detect_type(payload),
        "delay": options["delay"],
        "available_at": options["at"],
    }


def detect_type(payload: bytes) -> str:
    """Guess the content type of a payload: JSON object or array, UTF-8 text, or bytes."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return BYTES
    try:
        is_json = text.lstrip()[:1] in ("{", "[") and json.loads(text) is not None
    except (ValueError, RecursionError):
        is_json = False
    return JSON if is_json else TEXT


def _result(receipt: Receipt) -> CommandResult:
    job_ids = [ids.encode(job_id) for job_id in receipt.job_ids]
    replaced = [ids.encode(job_id) for job_id in receipt.replaced]
    content = {"message": ids.encode(receipt.message_id), "jobs": job_ids, "replaced": replaced}
    facts: list[tuple[str, Cell]] = [("message", ids.encode(receipt.message_id))]
    lines: list[Block] = [FactsBlock(facts + [("job", job_id) for job_id in job_ids])]
    if not job_ids:
        lines.append(StyledText("The channel has no consumer: no job was created.", Tone.WARN))
    return CommandResult(content, lines)


def _result_of_lines(receipts: Sequence[Receipt]) -> CommandResult:
    """Return the counts of published messages and their jobs, for a publish with --lines.

    The exit code is 1 if a full key kept a message from being published.
    """
    counts = {
        "messages": sum(not (receipt.duplicate or receipt.key_full) for receipt in receipts),
        "jobs": sum(len(receipt.job_ids) for receipt in receipts),
        "duplicates": sum(receipt.duplicate for receipt in receipts),
        "key_full": sum(receipt.key_full for receipt in receipts),
    }
    return CommandResult(
        counts,
        CommandResult.from_facts(counts).lines,
        EXIT_PROBLEM if counts["key_full"] else EXIT_OK,
    )
