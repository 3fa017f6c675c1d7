"""Create the channels, producers and consumers of a webhook-broker's INI file."""

from argparse import ArgumentParser
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from pulljobs import registering
from pulljobs.errors import InvalidRegistration
from pulljobs.management import broker_file
from pulljobs.management.broker_file import BrokerEntry, BrokerFile
from pulljobs.management.output_blocks import Cell, StyledText, TableBlock, Tone, text_columns
from pulljobs.management.subcommands import CommandResult
from pulljobs.models import Channel, Consumer, Producer
from pulljobs.registering import Change

TONES: Final = {
    "made": Tone.GOOD,
    "changed": Tone.GOOD,
    "unchanged": Tone.FAINT,
    "skipped": Tone.WARN,
}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="INI file, such as webhook-broker.cfg")


def handle(file: Path, **options: Any) -> CommandResult:
    load = BrokerLoad(broker_file.read_broker_file(file))
    entries = {**{str(change): load.done[change] for change in Change}, "skipped": load.skipped}
    entries["elsewhere"] = load.file.elsewhere
    rows: list[list[Cell]] = [
        [StyledText(change, TONES.get(change, Tone.PLAIN)), text]
        for change, texts in entries.items()
        for text in texts
    ]
    return CommandResult(
        entries,
        [TableBlock(text_columns("result", "entry"), rows, "The file has no entries.")],
    )


class BrokerLoad:
    """Creation or update of the rows that a file lists, in one transaction for each entry.

    `done` has the entries by `Change`, and `skipped` the reasons why others were left out.
    Loading a file again changes nothing.
    """

    def __init__(self, file: BrokerFile) -> None:
        self.file, self.skipped = file, list(file.skipped)
        self.done: dict[Change, list[str]] = {change: [] for change in Change}
        channels: dict[str, Channel] = {}
        for entry in file.channels:
            made = self._put(Channel, f"channel {entry.id}", entry, {})
            if made is not None:
                channels[entry.id] = made
        for entry in file.producers:
            self._put(Producer, f"producer {entry.id}", entry, {})
        self._put_consumers(channels, file.consumers)

    def _put_consumers(
        self, channels: Mapping[str, Channel], entries: Iterable[BrokerEntry]
    ) -> None:
        for entry in entries:
            channel, label = channels.get(entry.channel), f"consumer {entry.id}"
            if channel is None:
                self.skipped.append(
                    f"{label}: [initial-channels] does not create {entry.channel!r}."
                )
            else:
                self._put(Consumer, label, entry, {"channel": channel})

    def _put(self, model: Any, label: str, entry: BrokerEntry, key: Mapping[str, Any]) -> Any:
        try:
            put = registering.put(model, {**key, "name": entry.id}, lambda _row: entry.fields)
        except InvalidRegistration as error:
            self.skipped.append(f"{label}: {error}")
            return None
        self.done[put.change].append(label)
        return put.token_holder
