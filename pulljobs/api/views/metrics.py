"""/metrics: what waits and what is dead, for Prometheus."""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from django.http import HttpResponse
from rest_framework.request import Request

from pulljobs.api import exceptions
from pulljobs.api.views.protocol import UserView
from pulljobs.conf import settings
from pulljobs.states import State
from pulljobs.storage import counts

if TYPE_CHECKING:
    from prometheus_client import Metric

GAUGES: Final = {State.QUEUED: "queued_job_count", State.DEAD: "dead_job_count"}


class Metrics(UserView):
    needs = {"GET": ["pulljobs.view_job"]}

    def get(self, request: Request) -> HttpResponse:
        if find_spec("prometheus_client") is None:
            raise exceptions.without_metrics()
        from prometheus_client import CollectorRegistry
        from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

        registry = CollectorRegistry(auto_describe=False)
        registry.register(Jobs())
        return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


class Jobs:
    """A collector: reads when it is asked, so that every process tells the same."""

    def collect(self) -> "Iterator[Metric]":
        from prometheus_client.core import GaugeMetricFamily

        using = settings().DATABASE
        consumers = {row.pk: row for row in counts.consumers(using)}
        live = {(one.consumer_id, one.state): one.jobs for one in counts.live(using, [*consumers])}
        for state, name in GAUGES.items():
            text = f"Jobs that are {state}, {counts.CAP} standing for any more."
            gauge = GaugeMetricFamily(name, text, labels=["channel", "consumer"])
            for pk, row in consumers.items():
                gauge.add_metric([row.channel.name, row.name], live.get((pk, state), 0))
            yield gauge
