"""Publish the rows of files as messages: Parquet, ORC, JSON lines, CSV, or lines of text.

Columns are payload (text, binary, or any type as JSON) and the other attributes of a message: key,
priority, message_id, headers (JSON text), content_type, delay (seconds), available_at and cost. All
rows are published or none, unless you choose another --mode or --on-bad-row. The same files are
published once, unless you give another --publish-id.
"""

from argparse import ArgumentParser
from typing import TYPE_CHECKING, Any

from pulljobs.management.subcommands import CommandResult

if TYPE_CHECKING:
    from pulljobs.lake.models import BulkPublish


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="the suffix is the format")
    parser.add_argument("--channel", required=True, metavar="NAME", help="channel to publish on")
    parser.add_argument("--consumer", help="the only consumer that gets a job")
    parser.add_argument("--producer", help="producer of the messages")
    parser.add_argument(
        "--mode", choices=["atomic", "chunked"], default="atomic",
        help="one transaction for all rows, or one for each task (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--on-bad-row", choices=["stop", "reject"], default="stop",
        help="stop everything on an invalid row, or store it apart (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--publish-id", help="id that makes it happen once (from the files)")
    parser.add_argument(
        "--whole", action="store_true", help="publish each whole row as a JSON payload"
    )


def handle(**options: Any) -> CommandResult:
    from pulljobs.lake.spark import message_files, progress, publishing, session

    target = publishing.Target(
        channel=options["channel"],
        consumer=options["consumer"],
        producer=options["producer"],
        mode=options["mode"],
        on_bad_row=options["on_bad_row"],
    )
    publish_id = options["publish_id"] or publishing.derive_id(target, options["files"])
    with session.open_session("publish", master=options["master"], conf=options["conf"]) as spark:
        frame = message_files.read_files(spark, options["files"], whole=options["whole"])
        with progress.reporting(spark, f"publish on {target.channel}"):
            done, before = publishing.publish(frame, target, publish_id)
    return answer(done, before)


def answer(done: "BulkPublish", before: bool) -> CommandResult:
    """Return the output of the subcommand for a publish, which was done earlier if `before`."""
    counts = {
        name: getattr(done, name)
        for name in ("rows", "messages", "jobs", "duplicates", "key_full", "rejected")
    }
    content = {"publish_id": done.publish_id, "done_before": before, **counts}
    if before:
        return CommandResult(
            content,
            [
                f"Published before, as {done.publish_id}, at {done.settled_at:%Y-%m-%d %H:%M %Z}: "
                f"{done.messages:,} messages. To publish it again give another --publish-id."
            ],
        )
    lines = [f"published: {done.messages:,} messages of {done.rows:,} rows, {done.jobs:,} jobs"]
    if done.duplicates:
        lines.append(f"{done.duplicates:,} were duplicates of messages in the dedupe window.")
    if done.key_full:
        lines.append(f"{done.key_full:,} were refused because their keys were full.")
    if done.rejected:
        lines.append(f"{done.rejected:,} rows were invalid: see the table of rejected rows.")
    return CommandResult(content, [*lines, f"publish id: {done.publish_id}"])
