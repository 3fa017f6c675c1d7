"""Publish a message on a channel, as `pulljobs.publishing.publish` does and under the same rules.

    publish orders '{"order": 7}' --key customer-12
    publish orders --file order.json --delay 5m
    publish orders --file orders.jsonl --lines

What is a JSON object or array is sent as JSON, other text as text and the rest as bytes, unless
--content-type says otherwise. A message is the operator's own unless --producer names whose it is.
With --lines there is a message for every line that is not empty: all of them, or none.
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
from pulljobs.management.parsing import moment, pair, span
from pulljobs.management.subcommands import EXIT_OK, EXIT_PROBLEM, CommandResult
from pulljobs.progress import counted, shown
from pulljobs.publishing import Draft, Receipt, encoded, publish, publish_many


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("channel", metavar="CHANNEL", help="to publish on")
    parser.add_argument("payload", nargs="?", metavar="PAYLOAD", help="text; - is what is piped in")
    parser.add_argument("--file", type=Path, help="whose contents are the payload")
    parser.add_argument(
        "--lines", action="store_true", help="a message for each line of the file or of the pipe"
    )
    parser.add_argument("--content-type", metavar="TYPE", help="such as application/json")
    parser.add_argument(
        "--header", type=pair, action="append", default=[], metavar="NAME=VALUE",
        help="of the message, may be repeated",
    )  # fmt: skip
    parser.add_argument("--key", help="for consumers that keep the jobs of a key apart")
    parser.add_argument(
        "--priority", type=int, default=0, help="-32768 to 32767, the highest first (0)"
    )
    parser.add_argument("--delay", type=span, metavar="TIME", help="until it is due: 90, 5m, 2h")
    parser.add_argument(
        "--at", type=moment, metavar="TIME", help="when it is due: 2027-01-31T08:00Z"
    )
    parser.add_argument(
        "--message-id", metavar="ID", help="by which it is published once in the dedupe window"
    )
    parser.add_argument("--producer", metavar="NAME", help="whose message it is")


def handle(**options: Any) -> CommandResult:
    _check(options)
    of = lookups.find_producer(options["producer"]) if options["producer"] else None
    if not options["lines"]:
        fields = _fields(_whole(options), options)
        return _of_one(publish(options["channel"], **fields, producer=of))
    with _opened(options) as lines, shown("publish", "messages") as progress:
        drafts = (Draft(**_fields(line, options)) for line in _full(lines))
        receipts = publish_many(options["channel"], counted(drafts, progress), producer=of)
    return _of_many(receipts)


def _check(options: dict[str, Any]) -> None:
    if options["file"] is not None and options["payload"] is not None:
        raise ConfigurationError("A payload and --file are one too many: give one of them.")
    if options["lines"] and options["payload"] not in (None, "-"):
        raise ConfigurationError("--lines is for a file or for what is piped in, not for text.")
    if options["lines"] and options["message_id"]:
        raise ConfigurationError("--message-id is for one message: leave it out with --lines.")
    if options["delay"] is not None and options["at"] is not None:
        raise ConfigurationError("--delay and --at are one too many: give one of them.")
    if _is_piped(options) and sys.stdin.isatty():
        raise ConfigurationError("Publish what? Give text, --file, or pipe something in.")


def _is_piped(options: dict[str, Any]) -> bool:
    return options["file"] is None and options["payload"] in (None, "-")


@contextmanager
def _opened(options: dict[str, Any]) -> Iterator[IO[bytes]]:
    if options["file"] is None:
        yield sys.stdin.buffer
        return
    try:
        source = options["file"].open("rb")
    except OSError as error:
        raise ConfigurationError(f"{options['file']} can't be read: {error.strerror}.") from error
    with source:
        yield source


def _whole(options: dict[str, Any]) -> bytes:
    if options["payload"] not in (None, "-"):
        return encoded(options["payload"])[0]
    with _opened(options) as source:
        # What is too large is refused for it, and not kept in memory before.
        read = source.read(settings().MAX_PAYLOAD_BYTES + 1)
    if not read and options["payload"] is None and options["file"] is None:
        raise ConfigurationError("Nothing was piped in: an empty message is published by ''.")
    return read


def _full(lines: Iterable[bytes]) -> Iterator[bytes]:
    return filter(None, (line.rstrip(b"\r\n") for line in lines))


def _fields(payload: bytes, options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `publish`."""
    return {
        "payload": payload,
        "key": options["key"],
        "priority": options["priority"],
        "message_id": options["message_id"],
        "headers": dict(options["header"]),
        "content_type": options["content_type"] or type_of(payload),
        "delay": options["delay"],
        "available_at": options["at"],
    }


def type_of(payload: bytes) -> str:
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return BYTES
    try:
        is_json = text.lstrip()[:1] in ("{", "[") and json.loads(text) is not None
    except (ValueError, RecursionError):
        is_json = False
    return JSON if is_json else TEXT


def _of_one(made: Receipt) -> CommandResult:
    job_ids = [ids.encode(one) for one in made.job_ids]
    replaced = [ids.encode(one) for one in made.replaced]
    content = {"message": ids.encode(made.message_id), "jobs": job_ids, "replaced": replaced}
    facts: list[tuple[str, Cell]] = [("message", ids.encode(made.message_id))]
    lines: list[Block] = [FactsBlock(facts + [("job", one) for one in job_ids])]
    if not job_ids:
        lines.append(StyledText("The channel has no consumer: nobody gets it.", Tone.WARN))
    return CommandResult(content, lines)


def _of_many(receipts: Sequence[Receipt]) -> CommandResult:
    """1 where the key of some was full: they were not published."""
    told = {
        "messages": sum(not (one.duplicate or one.key_full) for one in receipts),
        "jobs": sum(len(one.job_ids) for one in receipts),
        "duplicates": sum(one.duplicate for one in receipts),
        "key_full": sum(one.key_full for one in receipts),
    }
    return CommandResult(
        told, CommandResult.from_facts(told).lines, EXIT_PROBLEM if told["key_full"] else EXIT_OK
    )
