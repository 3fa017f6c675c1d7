from collections.abc import Iterator

import pytest

from tests.handling import registry_of_its_own


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    with registry_of_its_own():
        yield
