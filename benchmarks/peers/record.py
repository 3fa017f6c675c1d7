"""What was measured so far, kept in a file so that an interrupted run can go on."""

import json
from pathlib import Path
from typing import Any

from benchmarks.peers.measures import Figures

Rounds = list[Figures]


class Record:
    """`peers`: by name an `error`, or `versions` and `figures`: rounds or an error by measure."""

    def __init__(self, path: Path, *, resume: bool) -> None:
        self._path = path
        self.content: dict[str, Any] = {"peers": {}}
        if resume and path.exists():
            self.content = json.loads(path.read_text())

    def about(self, **facts: Any) -> None:
        self.content |= facts
        self._save()

    def peer(self, name: str) -> dict[str, Any]:
        entry: dict[str, Any] = self.content["peers"].setdefault(name, {"figures": {}})
        return entry

    def prepared(self, name: str, versions: dict[str, str]) -> None:
        entry = self.peer(name)
        entry.pop("error", None)
        entry["versions"] = versions
        self._save()

    def failed(self, name: str, error: str) -> None:
        self.peer(name)["error"] = error
        self._save()

    def add(self, name: str, measure: str, figures: Figures) -> None:
        rounds = self.peer(name)["figures"].setdefault(measure, [])
        if isinstance(rounds, str):
            self.peer(name)["figures"][measure] = rounds = []
        rounds.append(figures)
        self._save()

    def give_up(self, name: str, measure: str, error: str) -> None:
        """The error stands in the place of the rounds."""
        self.peer(name)["figures"][measure] = error
        self._save()

    def rounds(self, name: str, measure: str) -> int:
        """How many are there; an error counts as none, so that a resumed run tries again."""
        found = self.peer(name)["figures"].get(measure, [])
        return 0 if isinstance(found, str) else len(found)

    def gave_up(self, name: str, measure: str) -> bool:
        return isinstance(self.peer(name)["figures"].get(measure), str)

    def _save(self) -> None:
        draft = self._path.with_suffix(".new")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(self.content, indent=1))
        draft.replace(self._path)
