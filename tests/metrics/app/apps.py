"""App that writes the spans of a worker's processes to the file in the variable `SPANS`."""

import os

from django.apps import AppConfig
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

FILE = "SPANS"


class Traced(AppConfig):
    name = "tests.metrics.app"
    label = "traced"

    def ready(self) -> None:
        provider = TracerProvider(shutdown_on_exit=False)
        lines = open(os.environ[FILE], "a", buffering=1)  # noqa: SIM115  as long as the process
        exporter = ConsoleSpanExporter(out=lines, formatter=lambda span: span.to_json(None) + "\n")
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        trace.set_tracer_provider(provider)
