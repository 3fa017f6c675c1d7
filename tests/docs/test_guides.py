"""The code of the guides on publishing and on handlers works."""

from collections.abc import Iterator
from datetime import timedelta
from types import ModuleType

import pytest
from django.contrib.auth.models import Group
from django.utils import timezone

from pulljobs import handlers
from pulljobs.errors import ScheduledTooSoon
from pulljobs.models import Channel, ScheduledMessage
from pulljobs.states import State
from pulljobs.testing import DrainedJob, drain
from tests.guides import forget, modules_of
from tests.handling import registry_of_its_own


@pytest.fixture
def code() -> Iterator[dict[str, ModuleType]]:
    with registry_of_its_own():
        try:
            yield modules_of("guides/publishing.md") | modules_of("guides/handlers.md")
        finally:
            forget("teams")
            forget("news")


def by_consumer(rans: list[DrainedJob]) -> dict[str, DrainedJob]:
    return {ran.consumer: ran for ran in rans}


@pytest.mark.django_db(transaction=True)
def test_a_team_goes_through_its_handlers(
    code: dict[str, ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    """Handlers of the guide deliver, retry and return results, and one runs after its job ended."""
    handlers.sync_consumers()
    code["teams.founding"].found_team("red")
    team = Group.objects.get(name="red")
    ran = by_consumer(drain())
    assert ran["permissions"].job.state == State.DELIVERED
    assert [permission.codename for permission in team.permissions.all()] == ["view_group"]
    assert (ran["size"].job.state, ran["size"].job.error) == (State.QUEUED, "the team is empty")
    assert ran["greeting"].job.state == State.DELIVERED
    assert ran["announcement"].job.result == {"announced": "red"}
    assert capsys.readouterr().out == f"Welcome, {team.pk}\n"


@pytest.mark.django_db(transaction=True)
def test_a_team_that_is_gone_is_discarded(code: dict[str, ModuleType]) -> None:
    handlers.sync_consumers()
    code["teams.founding"].found_team("red")
    Group.objects.all().delete()
    ran = by_consumer(drain())
    assert ran["size"].job.state == State.DEAD
    assert ran["size"].job.error == "the team was deleted"
    assert ran["permissions"].job.state == State.QUEUED


@pytest.mark.django_db
def test_news_are_published_once(code: dict[str, ModuleType]) -> None:
    Channel.objects.create(name="news")
    first = code["news.announcing"].announce("rain")
    assert code["news.announcing"].announce("rain") == first
    assert code["news.importing"].import_news(["rain", "sun", "snow", "sun"]) == 2


@pytest.mark.django_db
def test_news_are_planned_and_called_off(code: dict[str, ModuleType]) -> None:
    Channel.objects.create(name="news")
    planning, now = code["news.planning"], timezone.now()
    with pytest.raises(ScheduledTooSoon):
        planning.plan("sun", now)
    assert planning.plan("rain", now + timedelta(hours=1)) == "news-rain"
    assert ScheduledMessage.objects.get().dispatched_at is None
    assert planning.call_off("news-rain")
    assert not planning.call_off("news-rain")
