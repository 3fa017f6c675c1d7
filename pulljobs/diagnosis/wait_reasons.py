"""Reason for which a job waits, and its position in the queue."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, NamedTuple


@dataclass(frozen=True)
class WaitReason:
    """Reason for which a job waits, with a code for programs."""

    code: str
    text: str
    earliest: datetime | None = None
    """Time before which the job is not claimed, if the reason knows it."""
    limit: Mapping[str, Any] = field(default_factory=dict)
    """Limit that holds the job, with its level and its holders."""

    def content(self) -> dict[str, Any]:
        """Return the fields of the reason as a dict for JSON, without those that are empty."""
        known = asdict(self)
        return {name: value for name, value in known.items() if value or name in ("code", "text")}


class QueuePosition(NamedTuple):
    """Number and total cost of the jobs of the consumer that claims take before a job."""

    before: int
    is_least: bool
    """True if there may be more, because the job itself was not reached."""
    cost_before: float = 0
    """Tokens of a rate that these jobs take."""

    @property
    def text(self) -> str:
        """Sentence with the number of jobs that come before the job."""
        more = " or more" if self.is_least else ""
        return f"Jobs of its consumer that come before it: {self.before:,}{more}."
