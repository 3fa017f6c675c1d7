from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.webhooks.endpoint import OK, Answer, Endpoint, answering

Opened = Callable[..., Endpoint]


@pytest.fixture
def endpoint() -> Iterator[Opened]:
    """Yield a function that opens an endpoint with a given answer until the end of the test."""
    opened: list[Endpoint] = []

    def open(answer: Answer | None = None, **how: Any) -> Endpoint:
        opened.append(Endpoint(answer or answering(OK), **how))
        return opened[-1]

    yield open
    for endpoint in opened:
        endpoint.close()
