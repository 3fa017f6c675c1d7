"""Record of all measures in a file, so that an interrupted run can go on."""

import json
from pathlib import Path
from typing import Any

from benchmarks.peers.measures import Figures


class Record:
    """File of a run with an entry for each queue: `error`, or `versions`, `figures`, `errors`."""

    def __init__(self, path: Path, *, resume: bool) -> None:
        self._path = path
        self.content: dict[str, Any] = {"peers": {}}
        if resume and path.exists():
            self.content = json.loads(path.read_text())

    @property
    def has_facts(self) -> bool:
        """True if the machine and the date are on record."""
        return "machine" in self.content

    def about(self, **facts: Any) -> None:
        """Record facts about the run."""
        self.content |= facts
        self._save()

    def prepared(self, name: str, versions: dict[str, str]) -> None:
        """Record the versions of a queue that can run, and forget its errors of an earlier run."""
        self._peer(name).update(versions=versions, errors={})
        self._peer(name).pop("error", None)
        self._save()

    def failed(self, name: str, error: str) -> None:
        """Record why a compared queue cannot run."""
        self._peer(name)["error"] = error
        self._save()

    def add(self, name: str, measure: str, figures: Figures) -> None:
        """Append a round of figures of a measure, such as `noop x 1`, of a compared queue."""
        self._peer(name)["figures"].setdefault(measure, []).append(figures)
        self._save()

    def put(self, name: str, measure: str, rounds: list[Figures]) -> None:
        """Replace all rounds of a measure, because an earlier run may have had other sizes."""
        self._peer(name)["figures"][measure] = rounds
        self._save()

    def give_up(self, name: str, measure: str, error: str) -> None:
        """Record why a measure of a compared queue failed."""
        self._peer(name)["errors"][measure] = error
        self._save()

    def rounds(self, name: str, measure: str) -> int:
        """Return the number of successful rounds of a measure of a compared queue."""
        return len(self._peer(name)["figures"].get(measure, []))

    def hopeless(self, name: str, measure: str) -> bool:
        """Return True if a measure of a compared queue failed and has no successful round."""
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
