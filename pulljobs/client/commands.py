"""Command line of the client.

Exit codes: 0 success, 1 an error (a sentence on stderr says which), 2 arguments that the parser
refuses, 130 and 143 a signal, for `consume` a second one.
"""

import argparse
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from pulljobs.client.bodies import Draft, Receipt
from pulljobs.client.connecting import Connection, Subscription, without_login
from pulljobs.client.consumer import Consumer
from pulljobs.client.errors import ClientError, LeaseLost
from pulljobs.client.executing import Command
from pulljobs.client.flows import parts
from pulljobs.client.messages import Message
from pulljobs.client.publishing import PUBLISHED, Producer, published
from pulljobs.client.pulling import PullConsumer
from pulljobs.errors import ConfigurationError, PulljobsError

CHANNEL_TOKEN: Final = "PULLJOBS_CHANNEL_TOKEN"
CONSUMER_TOKEN: Final = "PULLJOBS_CONSUMER_TOKEN"
PRODUCER_TOKEN: Final = "PULLJOBS_PRODUCER_TOKEN"
GATEWAY_SECRET: Final = "PULLJOBS_GATEWAY_SECRET"
SECRETS: Final = (CHANNEL_TOKEN, CONSUMER_TOKEN, PRODUCER_TOKEN, GATEWAY_SECRET)
MOST: Final = 100

DESCRIPTION: Final = f"""
Tokens are read from the environment: {CHANNEL_TOKEN}, and {CONSUMER_TOKEN} or {PRODUCER_TOKEN}.
{GATEWAY_SECRET}, if it is set, signs the requests for a server with GATEWAY_SECRETS.
URL is that of a consumer, http://HOST/channel/NAME/consumer/NAME; to publish, that of its channel.
"""


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    level = logging.INFO if options.verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        options.run(options)
    except PulljobsError as error:
        print(f"pulljobs: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"pulljobs: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _consume(options: argparse.Namespace) -> None:
    [first, *others] = addresses = [_parse_url(url) for url in options.url]
    if any(each.names != first.names for each in others):
        raise ConfigurationError("All URLs must be of the same channel and consumer.")
    command = Command(options.exec, _without_secrets(os.environ), count=options.count)
    consumer = Consumer(
        command.run,
        [each.base_url for each in addresses],
        subscription=_subscription(first),
        max_in_flight=options.max_in_flight or options.concurrency,
        concurrency=options.concurrency,
        max_attempts=options.max_attempts,
        requeue_delay=None if options.delay is None else lambda attempts: float(options.delay),
        auto_renew=options.auto_renew,
        graceful_timeout=options.graceful_timeout,
        connection=_connection(options),
    )
    command.on_last = partial(consumer.set_max_in_flight, 0)
    command.on_done = consumer.stop
    consumer.run()


def _fetch(options: argparse.Namespace) -> None:
    address = _parse_url(options.url)
    subscription = _subscription(address)
    with PullConsumer(address.base_url, subscription, connection=_connection(options)) as consumer:
        messages = consumer.fetch(options.n, options.timeout)
        try:
            for message in messages:
                print(json.dumps(_shown(message)), flush=True)
        except BaseException:  # Such as that of a pipe whose reader has ended.
            consumer.release_all(messages)
            raise
        end = consumer.release_all if options.release else consumer.ack_all
        for lost in end(messages):
            raise LeaseLost(lost.id)


def _info(options: argparse.Namespace) -> None:
    address = _parse_url(options.url)
    subscription = _subscription(address)
    with PullConsumer(address.base_url, subscription, connection=_connection(options)) as consumer:
        print(json.dumps(consumer.info(), indent=2))


def _publish(options: argparse.Namespace) -> None:
    address = _parse_url(options.url)
    with Producer(
        address.base_url,
        address.channel,
        options.producer,
        channel_token=_token(CHANNEL_TOKEN),
        producer_token=_token(PRODUCER_TOKEN),
        connection=_connection(options),
    ) as producer:
        drafts = [_draft(options, payload) for payload in _payloads(options)]
        if options.message_id is not None and len(drafts) > 1:
            raise ConfigurationError(
                f"--message-id names one message, but there are {len(drafts)}: leave it out."
            )
        receipts = [receipt for some in parts(drafts, MOST) for receipt in _printed(producer, some)]
    for receipt in receipts:
        published(receipt)


def _printed(producer: Producer, drafts: Sequence[Draft]) -> Sequence[Receipt]:
    """Publish drafts, print the ids of those that are published by now, and return the receipts.

    Duplicates count as published. The ids are printed even if a request for other drafts fails.
    """
    receipts: Sequence[Receipt] = ()
    try:
        receipts = producer.publish_many(drafts)
    except ClientError as error:
        receipts = error.receipts
        raise
    finally:
        for receipt in receipts:
            if receipt.status in PUBLISHED:
                print(receipt.message_id, flush=True)
    return receipts


def _payloads(options: argparse.Namespace) -> list[bytes]:
    files = [
        sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        for name in options.file or ["-"]
    ]
    if not options.lines:
        return files
    return [line for content in files for line in content.splitlines() if line.strip()]


def _draft(options: argparse.Namespace, payload: bytes) -> Draft:
    return Draft(
        payload=payload,
        key=options.key,
        priority=options.priority,
        cost=options.cost,
        message_id=options.message_id,
        headers=dict(options.header),
        content_type=options.content_type,
    )


def _shown(message: Message) -> dict[str, Any]:
    """Return the JSON object of a message's job, as the API returned it, without its lease."""
    given = message.job.given
    return {name: given[name] for name in given if not name.startswith("Lease")}


class _Address(NamedTuple):
    """Parts of the URL of a channel or consumer."""

    base_url: str
    channel: str
    consumer: str
    """Name of the consumer, or an empty text in the URL of a channel."""

    @property
    def names(self) -> tuple[str, str]:
        return self.channel, self.consumer


def _parse_url(url: str) -> _Address:
    base_url, separator, rest = url.partition("/channel/")
    names = [unquote(part) for part in rest.rstrip("/").split("/")]
    if separator and len(names) == 1 and names[0]:
        return _Address(base_url, names[0], "")
    if separator and len(names) == 3 and names[1] == "consumer" and all(names):
        return _Address(base_url, names[0], names[2])
    raise ConfigurationError(
        f"{without_login(url)!r} names no channel: write http://HOST/channel/NAME to publish, "
        "and else http://HOST/channel/NAME/consumer/NAME."
    )


def _subscription(address: _Address) -> Subscription:
    if not address.consumer:
        raise ConfigurationError("The URL names no consumer: end it with /consumer/NAME.")
    return Subscription(*address.names, _token(CHANNEL_TOKEN), _token(CONSUMER_TOKEN))


def _token(name: str) -> str:
    token = os.environ.get(name)
    if not token:
        raise ConfigurationError(f"{name} is not set: set it in the environment.")
    return token


def _connection(options: argparse.Namespace) -> Connection:
    certificate = (options.cert, options.cert_key) if options.cert else None
    secret = os.environ.get(GATEWAY_SECRET) or None
    return Connection(ca_file=options.ca_file, certificate=certificate, gateway_secret=secret)


def _without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for shell commands, without the secrets, which they might print."""
    return {name: value for name, value in environment.items() if name not in SECRETS}


def _count(text: str) -> int:
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1")
    return int(text)


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is no header: write NAME=TEXT")
    return name, value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pulljobs.client", description=DESCRIPTION, allow_abbrev=False
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _consume_options(commands.add_parser("consume", help="run a command for each message"))
    publish = commands.add_parser("publish", help="publish files, lines or stdin")
    publish.set_defaults(run=_publish)
    publish.add_argument("url", metavar="URL")
    publish.add_argument("file", nargs="*", metavar="FILE", help="a message each; - is stdin")
    publish.add_argument("--producer", required=True, metavar="NAME")
    publish.add_argument("--lines", action="store_true", help="each line is a message")
    publish.add_argument("--key")
    publish.add_argument("--priority", type=int, default=0)
    publish.add_argument("--cost", type=int, default=1)
    publish.add_argument("--message-id", help="id of the message: a repeat publishes nothing")
    publish.add_argument("--content-type")
    publish.add_argument("--header", type=_header, action="append", default=[], metavar="NAME=TEXT")
    fetch = commands.add_parser("fetch", help="print messages, a line of JSON each, and ack them")
    fetch.set_defaults(run=_fetch)
    fetch.add_argument("url", metavar="URL")
    fetch.add_argument("-n", type=int, default=1, help="number of messages at most; 1 by default")
    fetch.add_argument("--timeout", type=float, default=5.0, metavar="SECONDS")
    fetch.add_argument("--release", action="store_true", help="release the messages instead")
    info = commands.add_parser("info", help="print counts and limits of the consumer as JSON")
    info.set_defaults(run=_info)
    info.add_argument("url", metavar="URL")
    for command in commands.choices.values():
        command.add_argument("--ca-file", metavar="FILE", help="certificates to trust")
        command.add_argument("--cert", metavar="FILE", help="the client's certificate")
        command.add_argument("--cert-key", metavar="FILE", help="its key")
        command.add_argument("-v", "--verbose", action="store_true", help="log at level INFO")
    return parser


def _consume_options(consume: argparse.ArgumentParser) -> None:
    consume.set_defaults(run=_consume)
    consume.add_argument("url", nargs="+", metavar="URL", help="more than one: more brokers")
    consume.add_argument(
        "--exec", required=True, metavar="COMMAND", help="the payload is its stdin; exit 0 acks"
    )
    consume.add_argument("--concurrency", type=int, default=1, help="commands at once")
    consume.add_argument(
        "--max-in-flight", type=int, help="held messages; by default as --concurrency"
    )
    consume.add_argument("--max-attempts", type=int, default=6, help="calls a message; 0: no limit")
    consume.add_argument("--delay", type=float, help="seconds before a retry; or 90 x attempts")
    consume.add_argument("--count", type=_count, help="stop after this number of messages")
    consume.add_argument(
        "--auto-renew", action="store_true", help="renew leases while handlers run"
    )
    consume.add_argument("--graceful-timeout", type=float, default=15.0, metavar="SECONDS")
