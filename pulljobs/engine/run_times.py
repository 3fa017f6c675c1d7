"""Measured run times of handlers, by which a worker decides how many jobs to claim ahead."""

from dataclasses import dataclass
from typing import Final

GAIN: Final = 1 / 8
"""Weight of a new run in the mean, as TCP weighs round trips (RFC 6298)."""
DEVIATION_GAIN: Final = 1 / 4
SAMPLE: Final = 0.001
"""Least seconds between the starts of runs that are noted, because a note takes time itself."""
MARGIN: Final = 2
"""Number of deviations by which the expected run time is above the mean."""
UNKNOWN: Final = float("inf")
SECONDS_AHEAD: Final = 0.5
"""Seconds of work that a process claims in advance."""
SECONDS_AHEAD_OF_TURNS: Final = 0.01
"""Seconds of work claimed in advance where keys take turns, because a new key waits for them."""


@dataclass(slots=True, eq=False)
class RunTime:
    """Run time of one handler, as a moving mean with its deviation.

    Threads note their runs without a lock, so a run may be left out.
    """

    expected: float = UNKNOWN
    """Seconds that the next run takes, with a margin, or infinity while no run has ended."""
    due: float = 0.0
    """Monotonic time from which on the next run that starts is noted.

    Not every quick run is. The sample is chosen by the starts of runs: chosen by their ends, it
    would have too many long runs, and the process would claim too little.
    """
    ahead: float = SECONDS_AHEAD
    """Seconds of work of the handler that its process claims in advance."""
    _mean: float = 0.0
    _deviation: float = 0.0

    def note(self, seconds: float, begun_at: float = 0.0) -> None:
        """Include a run of the handler in the mean. `begun_at` is its monotonic start.

        Runs that start less than `SAMPLE` seconds later need not be noted: see `due`.
        """
        self.due = begun_at + SAMPLE
        if self.expected == UNKNOWN:
            self.expected = self._mean = seconds
            return
        mean, deviation = self._mean, self._deviation
        error = seconds - mean
        self._mean = mean = mean + GAIN * error
        deviation += DEVIATION_GAIN * ((error if error > 0 else -error) - deviation)
        self._deviation, self.expected = deviation, mean + MARGIN * deviation
