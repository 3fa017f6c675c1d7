"""Publish jobs again that the lake remembers, chosen by SQL, each linked to its original.

With --dry-run it only counts. Columns are those of the archive (state, reason, error, channel,
consumer, settled_at, retry_count ...) as the job's last settlement has them, and those of its
message (key, priority, published_at ...).
"""

from argparse import ArgumentParser
from typing import TYPE_CHECKING, Any

from pulljobs.management.subcommands import CommandResult

if TYPE_CHECKING:
    from pulljobs.lake.models import BulkPublish
    from pulljobs.lake.spark.replaying import Found, Replayed


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--where",
        required=True,
        metavar="SQL",
        help="such as \"state = 'DEAD' AND error LIKE '%%timeout%%'\"",
    )
    parser.add_argument(
        "--to", metavar="CHANNEL/CONSUMER", help="who gets them (the consumer each was of)"
    )
    parser.add_argument("--again", action="store_true", help="also those replayed before")
    parser.add_argument("--dry-run", action="store_true", help="count them only")
    parser.add_argument("--publish-id", help="by which it happens once")


def handle(**options: Any) -> CommandResult:
    from pulljobs.lake.spark import progress, replaying, session

    choice = replaying.Choice(
        where=options["where"],
        to=replaying.consumer(options["to"]) if options["to"] else None,
        again=options["again"],
    )
    with (
        session.opened("replay", master=options["master"], conf=options["conf"]) as spark,
        progress.shown(spark, "replay"),
    ):
        if options["dry_run"]:
            return _counted(replaying.count(spark, choice))
        return _done(replaying.replay(spark, choice, options["publish_id"]))


def _counted(found: "list[Found]") -> CommandResult:
    from pulljobs.lake.spark.replaying import names, shown

    known = names()
    jobs, fresh = sum(one.jobs for one in found), sum(one.fresh for one in found)
    lines = [shown(one, known) for one in found]
    lines.append(f"{fresh:,} of {jobs:,} jobs would be replayed.")
    content = {"jobs": jobs, "fresh": fresh, "groups": [one._asdict() for one in found]}
    return CommandResult(content, lines)


def _done(publishes: "list[Replayed]") -> CommandResult:
    total = sum(one.messages for one, before in publishes if not before)
    lines = [_line(*one) for one in publishes]
    content = {
        "replayed": total,
        "publishes": [
            {
                "publish_id": one.publish_id,
                "done_before": before,
                "consumer": str(one.only_consumer),
                "replayed": one.messages,
                "rejected": one.rejected,
                "key_full": one.key_full,
            }
            for one, before in publishes
        ],
    }
    return CommandResult(content, [*lines, f"{total:,} jobs were replayed."])


def _line(one: "BulkPublish", before: bool) -> str:
    if before:
        return (
            f"{one.only_consumer}: nothing now; {one.messages:,} were replayed as "
            f"{one.publish_id} at {one.settled_at:%Y-%m-%d %H:%M %Z}. For more give another "
            "--publish-id."
        )
    return f"{one.only_consumer}: {one.messages:,} replayed" + _left(one)


def _left(one: "BulkPublish") -> str:
    parts = []
    if one.rejected:
        parts.append(f"{one.rejected:,} rejected, such as those whose payload is gone")
    if one.key_full:
        parts.append(f"{one.key_full:,} refused by full keys")
    return "".join(f", {part}" for part in parts)
