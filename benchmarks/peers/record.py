"""What was measured so far, kept in a file so that an interrupted run can go on."""

import json
from pathlib import Path
from typing import Any

from benchmarks.peers.measures import Figures


class Record:
    """`peers`: by name an `error`, or `versions`, and by measure `figures` and `errors`."""

    def __init__(self, path: Path, *, resume: bool) -> None:
        self._path = path
        self.content: dict[str, Any] = {"peers": {}}
        if resume and path.exists():
            self.content = json.loads(path.read_text())

    @property
    def told(self) -> bool:
        """Whether it says where and when."""
        return "machine" in self.content

    def about(self, **facts: Any) -> None:
        self.content |= facts
        self._save()

    def prepared(self, name: str, versions: dict[str, str]) -> None:
        """What failed in a run before is tried again."""
        self._peer(name).update(versions=versions, errors={})
        self._peer(name).pop("error", None)
        self._save()

    def failed(self, name: str, error: str) -> None:
        self._peer(name)["error"] = error
        self._save()

    def add(self, name: str, measure: str, figures: Figures) -> None:
        self._peer(name)["figures"].setdefault(measure, []).append(figures)
        self._save()

    def put(self, name: str, measure: str, rounds: list[Figures]) -> None:
        """In the place of those of a run before, which may have been of other sizes."""
        self._peer(name)["figures"][measure] = rounds
        self._save()

    def give_up(self, name: str, measure: str, error: str) -> None:
        self._peer(name)["errors"][measure] = error
        self._save()

    def rounds(self, name: str, measure: str) -> int:
        """How many worked."""
        return len(self._peer(name)["figures"].get(measure, []))

    def hopeless(self, name: str, measure: str) -> bool:
        """Tried, and never worked."""
        return measure in self._peer(name)["errors"] and not self.rounds(name, measure)

    def _peer(self, name: str) -> dict[str, Any]:
        empty: dict[str, Any] = {"figures": {}, "errors": {}}
        entry: dict[str, Any] = self.content["peers"].setdefault(name, empty)
        return entry

    def _save(self) -> None:
        draft = self._path.with_suffix(".new")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(self.content, indent=1))
        draft.replace(self._path)
