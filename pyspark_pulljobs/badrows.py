"""Report of the rows that are not valid messages: their number, reasons and an example each."""

from collections import Counter
from collections.abc import Iterable

from pulljobs.errors import InvalidMessage
from pyspark_pulljobs.rows import Reject


class BadRows:
    """Counter of bad rows by reason, with the first row of each reason as an example."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._samples: dict[str, Reject] = {}

    def add(self, rejects: Iterable[Reject]) -> None:
        for reject in rejects:
            self._counts[reject.reason] += 1
            self._samples.setdefault(reject.reason, reject)

    def stop(self, undone: str) -> None:
        """Raise InvalidMessage if there are bad rows; the text has only the sizes of payloads."""
        if self._counts:
            raise InvalidMessage(
                f"{self._counts.total():,} rows can't be published, so {undone}: "
                + "; ".join(map(self._told, self._counts))
                + ". Correct them, or store them as rejected rows with the option onBadRow=reject."
            )

    def _told(self, reason: str) -> str:
        sample = self._samples[reason]
        return f"{self._counts[reason]:,} {reason}, such as {sample.row}: {sample.error}"
