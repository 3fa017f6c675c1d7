"""Creation of the tables, partitions and consumers: one runs on threads, one on event loops.

python -m benchmarks.faults.roles.prepare \
    '{"lease_duration": SECONDS, "exclusive": BOOLEAN, "group": BOOLEAN,
    "limits": {NAME: VALUE}, "by_key": {NAME: VALUE}, "endpoint": URL}'

With a URL it creates a push consumer as well.
"""

import json
import sys
from collections.abc import Mapping
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
    endpoint: str = "",
) -> None:
    """Migrate the database and create the consumers, with `by_key` as limits of each key.

    With `group` they share `limits`. An `endpoint` is the URL of one more consumer, of type push.
    """
    call_command("migrate", verbosity=0)
    operating.maintain()
    fields: dict[str, Any] = {
        "lease_duration": timedelta(seconds=lease_duration),
        "retry_strategy": "constant:0.1",
        "max_retries": WITHOUT_END,
        "max_deliveries": WITHOUT_END,
        "exclusive_keys": exclusive,
        **shared_limits(limits, group=group),
        **by_key,
    }
    put_consumer("faults", "worked", fields)
    put_consumer("faults-async", "awaited", fields)
    if endpoint:
        push = {"type": Consumer.Type.PUSH, "callback_url": endpoint}
        put_consumer("faults-push", "pushed", fields | push)


def shared_limits(limits: Mapping[str, Any], *, group: bool) -> dict[str, Any]:
    """Return the fields that give a consumer these limits, its own or those of a limit group."""
    if not group:
        return dict(limits)
    return {"limit_group": registering.put_limit_group("faults", limits)[0]}


def put_consumer(channel_name: str, name: str, fields: Mapping[str, Any]) -> None:
    """Create a consumer, or change the one that migrate created."""
    channel, _is_new = Channel.objects.get_or_create(name=channel_name)
    consumer, _is_new = Consumer.objects.get_or_create(channel=channel, name=name)
    for field, value in fields.items():
        setattr(consumer, field, value)
    consumer.save()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
