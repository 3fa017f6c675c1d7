"""What is said of rows that are no messages: how many, why, and one of each kind."""

from collections import Counter
from collections.abc import Iterable

from pulljobs.errors import InvalidMessage
from pyspark_pulljobs.rows import Reject


class BadRows:
    """Counted, whatever becomes of them."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._samples: dict[str, Reject] = {}

    def add(self, rejects: Iterable[Reject]) -> None:
        for reject in rejects:
            self._counts[reject.reason] += 1
            self._samples.setdefault(reject.reason, reject)

    def stop(self, undone: str) -> None:
        """Raise InvalidMessage if there are any; payloads are told by their sizes only."""
        if self._counts:
            raise InvalidMessage(
                f"{self._counts.total():,} rows can't be published, so {undone}: "
                + "; ".join(map(self._told, self._counts))
                + ". Mend them, or keep them apart with the option onBadRow=reject."
            )

    def _told(self, reason: str) -> str:
        sample = self._samples[reason]
        return f"{self._counts[reason]:,} {reason}, such as {sample.row}: {sample.error}"
