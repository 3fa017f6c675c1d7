"""Change of the limits of all consumers, or of their group, while they are at work.

    python -m benchmarks.faults.roles.change_limits '{"limits": {NAME: VALUE}, "group": BOOLEAN,
        "by_key": {NAME: VALUE}}'

It prints the times before the first and after the last change by the clock of the machine, which is
that of the database.
"""

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

import django

django.setup()

from benchmarks.faults.roles.prepare import shared_limits  # noqa: E402  Django first
from pulljobs.models import Consumer  # noqa: E402


def main(*, limits: Mapping[str, Any], group: bool, by_key: Mapping[str, Any]) -> None:
    """Save the limits in all consumers, as the admin does. Print the times before and after."""
    since = time.time()
    for consumer in Consumer.objects.all():
        for field, value in {**shared_limits(limits, group=group), **by_key}.items():
            setattr(consumer, field, value)
        consumer.save()
    print(json.dumps([since, time.time()]))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
