"""The lag of the export is a metric where there is a lake."""

import pytest
from django.conf import settings
from django.test import override_settings

from pulljobs.states import State
from tests.api.caller import Subscription, job_in
from tests.metrics.test_gauges import billing, read_gauges
from tests.sessions import query

__all__ = ["billing"]
pytestmark = pytest.mark.django_db(transaction=True)


def test_the_lake_s_lag_is_the_age_of_what_it_lacks(billing: Subscription) -> None:
    job_in(State.DELIVERED, billing)
    query("UPDATE pulljobs_archived_job SET settled_at = now() - interval '1 hour'")
    with override_settings(PULLJOBS={**settings.PULLJOBS, "LAKE": "lake"}):
        assert 3600 <= read_gauges()["pulljobs_lake_lag_seconds", ()] < 3700
    with override_settings(PULLJOBS={**settings.PULLJOBS, "LAKE": ""}):
        assert ("pulljobs_lake_lag_seconds", ()) not in read_gauges()
