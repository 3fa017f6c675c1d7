"""Make the channels, producers and consumers of a webhook-broker's INI file."""

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
    parser.add_argument("file", type=Path, help="such as webhook-broker.cfg")


def handle(file: Path, **options: Any) -> CommandResult:
    load = BrokerLoad(broker_file.read_broker_file(file))
    shown = {**{str(change): load.done[change] for change in Change}, "skipped": load.skipped}
    shown["elsewhere"] = load.file.elsewhere
    rows: list[list[Cell]] = [
        [StyledText(word, TONES.get(word, Tone.PLAIN)), one]
        for word in shown
        for one in shown[word]
    ]
    return CommandResult(
        shown,
        [TableBlock(text_columns("what came of it", "entry"), rows, "The file names nothing.")],
    )


class BrokerLoad:
    """Each entry in a transaction of its own; the same file again changes nothing."""

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
        self._consumers(channels, file.consumers)

    def _consumers(self, channels: Mapping[str, Channel], entries: Iterable[BrokerEntry]) -> None:
        for entry in entries:
            channel, told = channels.get(entry.channel), f"consumer {entry.id}"
            if channel is None:
                self.skipped.append(f"{told}: [initial-channels] makes no {entry.channel!r}.")
            else:
                self._put(Consumer, told, entry, {"channel": channel})

    def _put(self, model: Any, told: str, entry: BrokerEntry, key: Mapping[str, Any]) -> Any:
        try:
            put = registering.put(model, {**key, "name": entry.id}, lambda _row: entry.fields)
        except InvalidRegistration as error:
            self.skipped.append(f"{told}: {error}")
            return None
        self.done[put.change].append(told)
        return put.party
