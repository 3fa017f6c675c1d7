"""Verbs of `manage.py pulljobs` with valid and with invalid arguments."""

from collections.abc import Callable
from pkgutil import iter_modules
from typing import Any, Final

from pulljobs import ids
from pulljobs.management import subcommands
from pulljobs.models import Consumer
from tests.factories import JobFactory

Arguments = Callable[[Consumer], list[str]]
EVERY: Final = [entry.name.rstrip("_") for entry in iter_modules(subcommands.__path__)]


def place(consumer: Consumer) -> str:
    return f"{consumer.channel.name}/{consumer.name}"


def job(consumer: Consumer, **fields: Any) -> str:
    return ids.encode(JobFactory.create(consumer=consumer, **fields).id)


RUNS: Final[dict[str, list[Arguments]]] = {
    "capacity": [lambda consumer: ["--rate=1e9/d", "--disk=1T", "--wal=100M"]],
    "delete": [lambda consumer: ["--all", "--yes"], lambda c: [job(c, state="DEAD"), "--dry-run"]],
    "dispatch": [lambda consumer: []],
    "doctor": [lambda consumer: []],
    "explain": [lambda consumer: [job(consumer)], lambda c: [job(c, state="DELIVERED")]],
    "grants": [lambda consumer: ["shop", "--for=read"]],
    "inspect": [
        lambda consumer: ["channel"],
        lambda consumer: ["channel", consumer.channel.name],
        lambda consumer: ["consumer"],
        lambda consumer: ["consumer", place(consumer)],
        lambda consumer: ["job", job(consumer, state="DEAD")],
        lambda consumer: ["job", job(consumer, state="INFLIGHT")],
        lambda consumer: ["job", job(consumer, state="DELIVERED")],
        lambda consumer: ["node"],
        lambda consumer: ["node", "host:1"],
    ],
    "kill": [lambda consumer: ["--only", place(consumer), "--yes"]],
    "list": [lambda consumer: [], lambda consumer: ["--state", "DEAD", "--limit=5"]],
    "loadbroker": [lambda consumer: ["{broker}"]],
    "maintain": [lambda consumer: []],
    "operate": [lambda consumer: []],
    "partitions": [lambda consumer: []],
    "pause": [lambda consumer: [place(consumer), "--for=1h", "--yes"]],
    "prune": [
        lambda consumer: ["dead", "--dry-run"],
        lambda consumer: ["dead", "--yes", "--only", place(consumer)],
        lambda consumer: ["history", "--older-than=30d", "--yes"],
    ],
    "publish": [
        lambda consumer: [consumer.channel.name, "{}"],
        lambda consumer: [consumer.channel.name, "--file={lines}", "--lines"],
    ],
    "reap": [lambda consumer: []],
    "redrive": [lambda consumer: ["--all", "--yes"]],
    "requeue": [lambda consumer: ["--all", "--dry-run"]],
    "resume": [lambda consumer: [place(consumer), "--yes"]],
    "rotatetokens": [lambda consumer: []],
    "syncconsumers": [lambda consumer: [], lambda consumer: ["--update"]],
    "top": [lambda consumer: ["--once"], lambda consumer: ["--once", place(consumer)]],
    "verify": [lambda consumer: ["--patience=0"]],
}

CASES: Final = [(name, number) for name, runs in RUNS.items() for number in range(len(runs))]

MISTAKES: Final = {
    "nothing": ([], "required: ACTION"),
    "no such command": (["nix"], "invalid choice: 'nix'"),
    "no such flag": (["doctor", "--nix"], "unrecognized arguments: --nix"),
    "no duration": (["doctor", "--snapshot-age=soon"], "'soon' is no duration"),
    "no rate": (["capacity", "--rate=5/w"], "'5/w' is no rate of jobs"),
    "no disk": (["capacity", "--rate=5", "--wal=0"], "'0' must be above 0"),
    "no costs": (["capacity", "--rate=5", "--costs=nix"], "nix has no costs"),
    "no job": (["explain"], "required: JOB"),
    "no id": (["explain", "nix"], "'nix' is not an id"),
    "unknown job": (["explain", "12"], "There is no job 12"),
    "no kind": (["inspect", "queue"], "invalid choice: 'queue'"),
    "unknown channel": (["inspect", "channel", "order"], "did you mean 'orders'?"),
    "unknown consumer": (["inspect", "consumer", "orders/invoice"], "'orders/invoicing'?"),
    "unknown node": (["inspect", "node", "host:2"], "did you mean 'host:1'?"),
    "inspect without a job": (["inspect", "job"], "job id is missing"),
    "NUL": (["inspect", "channel", "a\x00b"], "There is no channel"),
    "no file": (["loadbroker", "/nix"], "can't be read"),
    "prune without a kind": (["prune"], "required: KIND"),
    "prune by hours": (["prune", "history", "--older-than=3h"], "must be 1d or more"),
    "prune without an age": (["prune", "history"], "The age is missing"),
    "prune without a terminal": (["prune", "dead"], "use --yes"),
    "prune of an unknown channel": (
        ["prune", "dead", "--only", "nix"],
        "There is no channel 'nix'",
    ),
    "redrive of nothing": (["redrive", "--yes"], "use --all"),
    "redrive of ids and a filter": (["redrive", "12", "--all"], "can't be combined"),
    "redrive without a terminal": (["redrive", "--all"], "use --yes"),
    "kill of no id": (["kill", "nix", "--yes"], "'nix' is not an id"),
    "kill of dead jobs": (["kill", "--state=DEAD"], "'DEAD' (choose from 'INFLIGHT', 'QUEUED')"),
    "pause of an unknown channel": (["pause", "nix", "--yes"], "There is no channel 'nix'"),
    "list too many": (["list", "--limit=99999"], "from 1 to 10000"),
    "no reason": (["prune", "dead", "--reason=bored"], "invalid choice: 'bored'"),
    "publish on an unknown channel": (["publish", "nix", "x"], "There is no channel 'nix'"),
    "publish nothing": (["publish", "orders"], "stdin is empty"),
    "publish text and a file": (["publish", "orders", "x", "--file=/nix"], "cannot be combined"),
    "publish no file": (["publish", "orders", "--file=/nix"], "can't be read"),
    "publish with no header": (["publish", "orders", "x", "--header=a"], "is not NAME=VALUE"),
    "publish with too high a priority": (
        ["publish", "orders", "x", "--priority=99999"],
        "priority must be",
    ),
    "publish at a time without a zone": (
        ["publish", "orders", "x", "--at=noon"],
        "is no time with a zone",
    ),
    "publish with delay and time": (
        ["publish", "orders", "x", "--delay=5m", "--at=2099-01-01T00:00Z"],
        "cannot be combined",
    ),
    "publish of an unknown producer": (
        ["publish", "orders", "x", "--producer=nix"],
        "no producer 'nix'",
    ),
    "publish too large a payload": (["publish", "orders", "x" * (1024 * 1024 + 1)], "the limit is"),
    "publish lines of text": (["publish", "orders", "x", "--lines"], "--lines is for"),
    "top of an unknown channel": (["top", "nix", "--once"], "There is no channel 'nix'"),
    "top too often": (["top", "--interval=0"], "from 0.1 to 3600"),
    "top by an unknown order": (["top", "--sort=size"], "invalid choice: 'size'"),
    "grants of no role": (["grants", ""], "'' is no name of a role"),
    "grants of too long a role": (["grants", "r" * 64], "which has 1 to 63 bytes"),
    "no rows": (["verify", "--rows=-1"], "no whole number from 0 on"),
}
