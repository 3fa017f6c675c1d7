from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from pulljobs import publishing
from pulljobs.models import Consumer
from pulljobs.workflows import definitions, workflow
from tests.factories import ConsumerFactory
from tests.handling import registry_of_its_own

F = TypeVar("F", bound=Callable[..., Any])


@pytest.fixture(autouse=True)
def _workflows() -> Iterator[None]:
    with registry_of_its_own():
        before = dict(definitions._registered)
        definitions._registered.clear()  # Another test may have left a workflow.
        yield
    definitions._registered.clear()
    definitions._registered.update(before)


class Bench:
    """Consumer whose jobs are runs of the workflow of a test."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer

    def workflow(self, function: F, **options: Any) -> F:
        return workflow(channel=self.consumer.channel.name, consumer=self.consumer.name, **options)(
            function
        )

    def start(self, payload: Any = None) -> int:
        [job_id] = publishing.publish(self.consumer.channel.name, payload).job_ids
        return job_id


@pytest.fixture
def bench(db: None) -> Bench:
    return Bench(ConsumerFactory.create(retry_strategy="constant:60", max_retries=2))
