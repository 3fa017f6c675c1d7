"""`pulljobs prune` keeps a day of history that the lake does not have."""

import pytest
from django.test import override_settings

from pulljobs.storage import partitions
from tests.commands.test_prune import _only_its_own_days, fates, old_days
from tests.factories import USING

__all__ = ["_only_its_own_days"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.owner]


@override_settings(PULLJOBS={"LAKE": "/lake"})
def test_history_that_the_lake_lacks_stays() -> None:
    days = old_days(100)
    stays = dict.fromkeys([day.name for day in days], "the lake has no verified copy of it")
    assert fates("--older-than=30d", "--dry-run") == stays
    assert fates("--older-than=30d", "--yes") == stays
    assert days[0] in partitions.existing(USING, days[0].table)
