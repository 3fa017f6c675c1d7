"""Creation of the tables and schedules of `schedule-faults`.

    python -m benchmarks.schedules.prepare COUNT OFTEN

Of COUNT schedules OFTEN fire every second, and the others every minute.
"""

import sys
from datetime import timedelta
from typing import Any, Final

import django

SECOND: Final = timedelta(seconds=1)
POLICIES: Final = ("all", "latest", "skip")
SKIPPING: Final = 7
"""One schedule in seven skips slots while a job of its previous message is live."""


def prepare(count: int, often: int) -> None:
    """Migrate, register the handler and create the schedules in one transaction."""
    from django.core.management import call_command
    from django.db import transaction

    from pulljobs import handlers, schedules

    call_command("migrate", verbosity=0)
    handlers.autodiscover()
    handlers.sync_consumers()
    with transaction.atomic():
        for number in range(count):
            rule: dict[str, Any] = {"every": SECOND} if number < often else {"cron": "* * * * *"}
            schedules.create(
                f"slot-{number}",
                "bench",
                {"number": number},
                missed=POLICIES[number % len(POLICIES)],
                overlap="skip" if number % SKIPPING == 0 else "allow",
                **rule,
            )


if __name__ == "__main__":
    django.setup()
    prepare(int(sys.argv[1]), int(sys.argv[2]))
