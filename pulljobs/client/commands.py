"""The command line: what is asked for, and how it ends.

Exit codes: 0 done, 1 refused or out of reach (one sentence on stderr says why), 2 wrongly asked,
130 and 143 a second signal.
"""

import argparse
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from pulljobs.client.bodies import Draft, Receipt
from pulljobs.client.connecting import Connection, Subscription
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
TOKENS: Final = (CHANNEL_TOKEN, CONSUMER_TOKEN, PRODUCER_TOKEN)
MOST: Final = 100

DESCRIPTION: Final = f"""
Tokens are read from the environment: {CHANNEL_TOKEN}, and {CONSUMER_TOKEN} or {PRODUCER_TOKEN}.
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
    [first, *others] = [_place(url) for url in options.url]
    if any(place[1:] != first[1:] for place in others):
        raise ConfigurationError("All URLs must be of the same channel and consumer.")
    command = Command(options.exec, _without_tokens(os.environ), count=options.count)
    consumer = Consumer(
        command.run,
        [place[0] for place in (first, *others)],
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
    base_url, *names = _place(options.url)
    subscription = _subscription((base_url, *names))
    with PullConsumer(base_url, subscription, connection=_connection(options)) as consumer:
        messages = consumer.fetch(options.n, options.timeout)
        for message in messages:
            print(json.dumps(_shown(message)), flush=True)
        end = consumer.release_all if options.release else consumer.ack_all
        for lost in end(messages):
            raise LeaseLost(lost.id)


def _info(options: argparse.Namespace) -> None:
    base_url, *names = _place(options.url)
    subscription = _subscription((base_url, *names))
    with PullConsumer(base_url, subscription, connection=_connection(options)) as consumer:
        print(json.dumps(consumer.info(), indent=2))


def _publish(options: argparse.Namespace) -> None:
    base_url, channel, _none = _place(options.url)
    with Producer(
        base_url,
        channel,
        options.producer,
        channel_token=_token(CHANNEL_TOKEN),
        producer_token=_token(PRODUCER_TOKEN),
        connection=_connection(options),
    ) as producer:
        drafts = [_draft(options, payload) for payload in _payloads(options)]
        if options.message_id is not None and len(drafts) > 1:
            raise ConfigurationError(
                f"--message-id is of one message, and these are {len(drafts)}: leave it out."
            )
        receipts = [one for some in parts(drafts, MOST) for one in _printed(producer, some)]
    for receipt in receipts:
        published(receipt)


def _printed(producer: Producer, drafts: Sequence[Draft]) -> Sequence[Receipt]:
    """Their receipts; the ids of what was published are printed, whatever became of the others."""
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
        message_id=options.message_id,
        headers=dict(options.header),
        content_type=options.content_type,
    )


def _shown(message: Message) -> dict[str, Any]:
    """As the API tells it, without the lease."""
    given = message.job.given
    return {name: given[name] for name in given if not name.startswith("Lease")}


def _place(url: str) -> tuple[str, str, str]:
    """The broker's base URL, the channel, and the consumer if the URL names one."""
    base_url, found, rest = url.partition("/channel/")
    names = [unquote(part) for part in rest.rstrip("/").split("/")]
    if found and len(names) == 1 and names[0]:
        return base_url, names[0], ""
    if found and len(names) == 3 and names[1] == "consumer" and all(names):
        return base_url, names[0], names[2]
    raise ConfigurationError(
        f"{url!r} names no consumer: write http://HOST/channel/NAME/consumer/NAME."
    )


def _subscription(place: tuple[str, ...]) -> Subscription:
    _base_url, channel, consumer = place
    if not consumer:
        raise ConfigurationError("The URL names no consumer: end it with /consumer/NAME.")
    return Subscription(channel, consumer, _token(CHANNEL_TOKEN), _token(CONSUMER_TOKEN))


def _token(name: str) -> str:
    token = os.environ.get(name)
    if not token:
        raise ConfigurationError(f"Set {name} in the environment: it is not there.")
    return token


def _connection(options: argparse.Namespace) -> Connection:
    certificate = (options.cert, options.cert_key) if options.cert else None
    return Connection(ca_file=options.ca_file, certificate=certificate)


def _without_tokens(environment: Mapping[str, str]) -> dict[str, str]:
    """For commands: they have no use for them, and may print what they were given."""
    return {name: value for name, value in environment.items() if name not in TOKENS}


def _count(text: str) -> int:
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1")
    return int(text)


def _header(text: str) -> tuple[str, str]:
    name, _equals, value = text.partition("=")
    return name, value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pulljobs.client", description=DESCRIPTION, allow_abbrev=False
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _consume_options(commands.add_parser("consume", help="run a command for each message"))
    publish = commands.add_parser("publish", help="publish files, lines or what stdin has")
    publish.set_defaults(run=_publish)
    publish.add_argument("url", metavar="URL")
    publish.add_argument("file", nargs="*", metavar="FILE", help="a message each; - is stdin")
    publish.add_argument("--producer", required=True, metavar="NAME")
    publish.add_argument("--lines", action="store_true", help="each line is a message")
    publish.add_argument("--key")
    publish.add_argument("--priority", type=int, default=0)
    publish.add_argument("--message-id", help="of one message: publishing that again does nothing")
    publish.add_argument("--content-type")
    publish.add_argument("--header", type=_header, action="append", default=[], metavar="NAME=TEXT")
    fetch = commands.add_parser("fetch", help="print messages, a line of JSON each, and ack them")
    fetch.set_defaults(run=_fetch)
    fetch.add_argument("url", metavar="URL")
    fetch.add_argument("-n", type=int, default=1, help="at the most; 1 by default")
    fetch.add_argument("--timeout", type=float, default=5.0, metavar="SECONDS")
    fetch.add_argument("--release", action="store_true", help="give them back instead")
    info = commands.add_parser("info", help="how the consumer stands, as JSON")
    info.set_defaults(run=_info)
    info.add_argument("url", metavar="URL")
    for one in commands.choices.values():
        one.add_argument("--ca-file", metavar="FILE", help="certificates to trust")
        one.add_argument("--cert", metavar="FILE", help="the client's certificate")
        one.add_argument("--cert-key", metavar="FILE", help="its key")
        one.add_argument("-v", "--verbose", action="store_true", help="say what goes on")
    return parser


def _consume_options(consume: argparse.ArgumentParser) -> None:
    consume.set_defaults(run=_consume)
    consume.add_argument("url", nargs="+", metavar="URL", help="more than one: more brokers")
    consume.add_argument(
        "--exec", required=True, metavar="COMMAND", help="the payload is its stdin; exit 0 acks"
    )
    consume.add_argument("--concurrency", type=int, default=1, help="commands at once")
    consume.add_argument("--max-in-flight", type=int, help="messages held; as many by default")
    consume.add_argument("--max-attempts", type=int, default=6, help="0: without end")
    consume.add_argument("--delay", type=float, help="before a retry; 90 seconds x attempts")
    consume.add_argument("--count", type=_count, help="stop after so many messages")
    consume.add_argument("--auto-renew", action="store_true", help="renew leases of what runs")
    consume.add_argument("--graceful-timeout", type=float, default=15.0, metavar="SECONDS")
