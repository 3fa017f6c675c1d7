"""Publish jobs of the lake again, selected by SQL, each linked to its original.

With --dry-run it only counts. Columns are those of the archive (state, reason, error, channel,
consumer, settled_at, retry_count ...) of the job's last settlement, and those of its message (key,
priority, published_at ...).
"""

from argparse import ArgumentParser
from typing import TYPE_CHECKING, Any

from pulljobs.management.subcommands import CommandResult

if TYPE_CHECKING:
    from pulljobs.lake.models import BulkPublish
    from pulljobs.lake.spark.replaying import Replayed, ReplayGroup


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--where",
        required=True,
        metavar="SQL",
        help="such as \"state = 'DEAD' AND error LIKE '%%timeout%%'\"",
    )
    parser.add_argument("--to", metavar="CHANNEL/CONSUMER", help="new consumer (each job's own)")
    parser.add_argument("--again", action="store_true", help="include jobs replayed before")
    parser.add_argument("--dry-run", action="store_true", help="only count the jobs")
    parser.add_argument("--publish-id", help="id that makes the replay happen once")


def handle(**options: Any) -> CommandResult:
    from pulljobs.lake.spark import progress, replaying, session

    choice = replaying.ReplayOptions(
        where=options["where"],
        to=replaying.consumer(options["to"]) if options["to"] else None,
        again=options["again"],
    )
    with (
        session.open_session("replay", master=options["master"], conf=options["conf"]) as spark,
        progress.reporting(spark, "replay"),
    ):
        if options["dry_run"]:
            return _counted(replaying.count(spark, choice))
        return _done(replaying.replay(spark, choice, options["publish_id"]))


def _counted(groups: "list[ReplayGroup]") -> CommandResult:
    from pulljobs.lake.spark.replaying import consumer_paths, describe

    paths = consumer_paths()
    jobs, fresh = sum(group.jobs for group in groups), sum(group.fresh for group in groups)
    lines = [describe(group, paths) for group in groups]
    lines.append(f"{fresh:,} of {jobs:,} jobs would be replayed.")
    content = {"jobs": jobs, "fresh": fresh, "groups": [group._asdict() for group in groups]}
    return CommandResult(content, lines)


def _done(publishes: "list[Replayed]") -> CommandResult:
    total = sum(publish.messages for publish, before in publishes if not before)
    lines = [_line(*replayed) for replayed in publishes]
    content = {
        "replayed": total,
        "publishes": [
            {
                "publish_id": publish.publish_id,
                "done_before": before,
                "consumer": publish.consumer_path,
                "replayed": publish.messages,
                "rejected": publish.rejected,
                "key_full": publish.key_full,
            }
            for publish, before in publishes
        ],
    }
    return CommandResult(content, [*lines, f"{total:,} jobs were replayed."])


def _line(publish: "BulkPublish", before: bool) -> str:
    if before:
        return (
            f"{publish.consumer_path}: nothing now, because {publish.messages:,} were replayed as "
            f"{publish.publish_id} at {publish.settled_at:%Y-%m-%d %H:%M %Z}. To replay more, "
            "give another --publish-id."
        )
    return f"{publish.consumer_path}: {publish.messages:,} replayed" + _left(publish)


def _left(publish: "BulkPublish") -> str:
    parts = []
    if publish.rejected:
        parts.append(f"{publish.rejected:,} rejected, such as those whose payload is gone")
    if publish.key_full:
        parts.append(f"{publish.key_full:,} refused by full keys")
    return "".join(f", {part}" for part in parts)
