"""Notes of clients that pull over HTTP, kept in memory until the next heartbeat stores them.

Only clients that send a name in a header are noted. The admin lists them.
"""

import re
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from pulljobs.storage.clients import MOST, ClientNote

MOST_OF_PROCESS: Final = 1_000
"""Largest number of clients that are noted between two heartbeats."""
NAME: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}")
LONGEST_HOST: Final = 255
LONGEST_ADDRESS: Final = 64
LONGEST_AGENT: Final = 200


class ClientNotes:
    """Clients that called this process since its last heartbeat, by consumer and name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._notes: dict[int, dict[str, ClientNote]] = {}
        self._count = 0

    def note(self, consumer_id: int, meta: Mapping[str, Any]) -> None:
        """Note the client of a request if it sent a valid name and not too many are noted.

        `meta` is `request.META`.
        """
        name = meta.get("HTTP_X_WORKER_ID")
        if name is None or name in self._notes.get(consumer_id, ()):
            return
        if NAME.fullmatch(name):
            self._add(make_note(consumer_id, name, meta))

    def take(self) -> list[ClientNote]:
        """Return all notes and forget them."""
        with self._lock:
            notes, self._notes, self._count = self._notes, {}, 0
        return [note for by_name in notes.values() for note in by_name.values()]

    def _add(self, note: ClientNote) -> None:
        with self._lock:
            by_name = self._notes.setdefault(note.consumer_id, {})
            if len(by_name) < MOST and self._count < MOST_OF_PROCESS and note.name not in by_name:
                by_name[note.name] = note
                self._count += 1


def make_note(consumer_id: int, name: str, meta: Mapping[str, Any]) -> ClientNote:
    """Return a note of a client with its host, address and version in bounded, printable ASCII."""
    read = partial(_printable, meta)
    return ClientNote(
        consumer_id,
        name,
        read("HTTP_X_WORKER_HOST", LONGEST_HOST),
        read("REMOTE_ADDR", LONGEST_ADDRESS),
        read("HTTP_USER_AGENT", LONGEST_AGENT),
    )


def _printable(meta: Mapping[str, Any], name: str, longest: int) -> str:
    text = str(meta.get(name) or "")[:longest]
    return "".join(letter for letter in text if " " <= letter <= "~")
