"""Warnings about a failure that each call may meet, of which the log needs only a few."""

import logging
import math
import time


class RepeatedWarning:
    """Warning that a process logs at most once in `seconds`, however often its cause repeats."""

    def __init__(self, logger: logging.Logger, seconds: float) -> None:
        self._logger, self._seconds = logger, seconds
        self._logged_at = -math.inf

    def log(self, text: str, *args: object) -> None:
        if time.monotonic() - self._logged_at >= self._seconds:
            self._logged_at = time.monotonic()
            self._logger.warning(text, *args)
