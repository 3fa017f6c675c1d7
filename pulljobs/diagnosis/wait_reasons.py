"""Reason for which a job waits."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any


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
