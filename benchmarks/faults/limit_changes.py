"""Changes of limits while consumers are at work."""

import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from benchmarks.faults.claim_rates import LimitChange, make_rate
from benchmarks.faults.plan import Plan
from benchmarks.faults.processes import Processes

FACTORS: Final = (0.5, 1.0, 2.0)
"""Rates after a change, as multiples of the rate of the plan."""
PAUSE: Final = 0.2


class LimitChanges:
    """Changes of a run's rate and of its bound on the jobs of a key, every few seconds."""

    def __init__(self, plan: Plan, processes: Processes) -> None:
        self._plan, self._processes = plan, processes
        self._over = threading.Event()
        self.made_at: list[LimitChange] = []

    @contextmanager
    def made(self) -> Iterator[None]:
        """Change limits until the end of the block, if the plan says so."""
        changing = threading.Thread(target=self._change_all)
        changing.start()
        try:
            yield
        finally:
            self._over.set()
            changing.join()

    def _change_all(self) -> None:
        while self._plan.change and not self._over.wait(self._plan.change):
            self._change()

    def _change(self) -> None:
        """Change the limits once. Repeat a failed change, which some consumers may have got."""
        plan, begun = self._plan, time.time()
        slots = random.randint(1, 2 * plan.slots) if plan.slots else 0
        text = _scale(plan.claim_rate, random.choice(FACTORS)) if plan.claim_rate else ""
        options = {
            "limits": {"rate": text} if text else {},
            "group": plan.group,
            "by_key": {"max_in_flight_per_key": slots} if slots else {},
        }
        is_first, times = True, self._processes.change_limits(**options)
        while times is None and not self._over.wait(PAUSE):
            is_first, times = False, self._processes.change_limits(**options)
        rate = make_rate(text)
        per_second, burst = (rate.per_second, rate.burst) if rate else (0.0, 0.0)
        first, last = times or (begun, float("inf"))
        change = LimitChange(first if is_first else begun, last, per_second, burst, slots)
        self.made_at.append(change)
        print(f"{time.monotonic():.1f} limits: {text} {slots or ''}", file=sys.stderr)


def _scale(rate: str, factor: float) -> str:
    number, unit = rate.split("/")
    return f"{max(1, round(int(number) * factor))}/{unit}"
