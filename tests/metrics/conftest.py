from datetime import timedelta

import pytest

from pulljobs.metrics import gauges
from tests.sessions import PATIENCE_SECONDS
from tests.worker.conftest import stage

__all__ = ["stage"]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the time limits for reading gauges, so that a slow read leaves none out of a scrape."""
    monkeypatch.setattr(gauges, "PATIENCE", timedelta(minutes=1))
    monkeypatch.setattr(gauges, "WAIT", PATIENCE_SECONDS)
