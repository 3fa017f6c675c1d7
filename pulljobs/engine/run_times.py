"""Run times of handlers, measured in the process that runs them."""

from dataclasses import dataclass
from typing import Final

GAIN: Final = 1 / 8
"""Weight of a new run in the mean, as TCP weighs round trips (RFC 6298)."""
DEVIATION_GAIN: Final = 1 / 4
SAMPLE: Final = 0.001
"""Seconds between the begins of runs that are noted, because a note takes a while itself."""
MARGIN: Final = 2
"""Deviations above the mean that a run is expected to take."""
UNKNOWN: Final = float("inf")
SECONDS_AHEAD: Final = 0.5
"""Seconds within which a claimed job is expected to start."""
SECONDS_AHEAD_OF_TURNS: Final = 0.01
"""These seconds where keys take turns, because a fresh key waits behind the claimed jobs."""


@dataclass(slots=True, eq=False)
class RunTime:
    """Run time of one handler, as a moving mean with its deviation.

    Threads note their runs without a lock, so a run may be left out.
    """

    expected: float = UNKNOWN
    """Seconds that the next run takes, with a margin, or infinity while no run has ended."""
    due: float = 0.0
    """Time of the monotonic clock from which on a run that begins is noted.

    Quick runs are a sample, chosen by their begins: at a given time a long run is more likely to
    end than one of many quick ones, and its process would claim too little.
    """
    ahead: float = SECONDS_AHEAD
    """Seconds within which a claimed job of the handler should start."""
    _mean: float = 0.0
    _deviation: float = 0.0

    def note(self, seconds: float, begun_at: float = 0.0) -> None:
        """Note how long a run took that began at that time of the monotonic clock."""
        self.due = begun_at + SAMPLE
        if self.expected == UNKNOWN:
            self.expected = self._mean = seconds
            return
        mean, deviation = self._mean, self._deviation
        error = seconds - mean
        self._mean = mean = mean + GAIN * error
        deviation += DEVIATION_GAIN * ((error if error > 0 else -error) - deviation)
        self._deviation, self.expected = deviation, mean + MARGIN * deviation
