"""Creation of the tables, the partitions and the consumers: one of threads and one of tasks.

python -m benchmarks.faults.roles.prepare \
    '{"lease_duration": SECONDS, "exclusive": BOOLEAN, "group": BOOLEAN,
    "limits": {NAME: VALUE}, "by_key": {NAME: VALUE}}'
"""

import json
import sys
from datetime import timedelta
from typing import Any, Final

import django

django.setup()

from django.core.management import call_command  # noqa: E402  Django first

from pulljobs import operating, registering  # noqa: E402
from pulljobs.models import Channel, Consumer  # noqa: E402

WITHOUT_END: Final = 10_000
"""Limit of retries and deliveries, so that no job dies because its worker is killed."""


def main(
    *,
    lease_duration: float,
    exclusive: bool,
    group: bool,
    limits: dict[str, Any],
    by_key: dict[str, Any],
) -> None:
    """Migrate the database and create the consumers, or change those that migrate created."""
    call_command("migrate", verbosity=0)
    operating.maintain()
    fields: dict[str, Any] = {
        "lease_duration": timedelta(seconds=lease_duration),
        "retry_strategy": "constant:0.1",
        "max_retries": WITHOUT_END,
        "max_deliveries": WITHOUT_END,
        "exclusive_keys": exclusive,
        **({} if group else limits),
        **by_key,
    }
    if group:
        fields["limit_group"], _change = registering.put_limit_group("faults", limits)
    for channel_name, name in (("faults", "worked"), ("faults-async", "awaited")):
        channel, _is_new = Channel.objects.get_or_create(name=channel_name)
        consumer, _is_new = Consumer.objects.get_or_create(channel=channel, name=name)
        for field, value in fields.items():
            setattr(consumer, field, value)
        consumer.save()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
