"""Error about rows that are not valid messages: how many for each reason, with an example."""

from collections import Counter
from collections.abc import Iterable

from pulljobs.errors import InvalidMessage
from pyspark_pulljobs.rows import Reject


class BadRows:
    """Counter of bad rows by reason, with the first row of each reason as an example."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, Reject] = {}

    def add(self, rejects: Iterable[Reject]) -> None:
        for reject in rejects:
            self._counts[reject.reason] += 1
            self._examples.setdefault(reject.reason, reject)

    def stop(self, consequence: str) -> None:
        """Raise InvalidMessage if there are bad rows. `consequence` says what is left undone.

        The message of the error has the sizes of payloads, but no payload.
        """
        if self._counts:
            raise InvalidMessage(
                f"{self._counts.total():,} rows can't be published, so {consequence}: "
                + "; ".join(map(self._describe, self._counts))
                + ". Correct them, or store them as rejected rows with the option onBadRow=reject."
            )

    def _describe(self, reason: str) -> str:
        example = self._examples[reason]
        error = example.error.removesuffix(".")
        return f"{self._counts[reason]:,} {reason}, such as {example.row}: {error}"
