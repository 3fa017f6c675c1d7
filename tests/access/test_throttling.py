"""A caller that reached the limit of its scope learns when to call again."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import cache, caches
from django.core.cache.backends.dummy import DummyCache
from django.core.checks import run_checks
from django.test import override_settings
from django.utils.functional import SimpleLazyObject

from pulljobs import hooks
from pulljobs.api import throttling
from pulljobs.api.openapi.document import routes
from pulljobs.api.throttling import seconds_to_wait
from pulljobs.conf import SCOPES
from tests.api.caller import Caller, subscription
from tests.api.management import Manager, user


class BrokenCache(DummyCache):
    """Cache of which the server cannot be reached."""

    def get(self, key: Any, *args: Any, **kwargs: Any) -> Any:
        raise OSError("refused")


@pytest.fixture(autouse=True)
def _counts_from_none(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    monkeypatch.setattr(throttling._failure, "_logged_at", -math.inf)
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def callers(db: None) -> tuple[Caller, Caller]:
    return Caller(subscription("orders", "census")), Caller(subscription("orders", "billing"))


def test_there_is_no_limit_unless_one_is_set(callers: tuple[Caller, Caller]) -> None:
    assert {callers[0].queued().status_code for _call in range(50)} == {200}


def test_a_caller_is_refused_for_itself_and_in_that_scope_alone(
    callers: tuple[Caller, Caller],
) -> None:
    census, billing = callers
    with override_settings(PULLJOBS={"THROTTLES": {"queued-jobs": "2/day", "job": "1/day"}}):
        assert [census.queued().status_code for _call in range(3)] == [200, 200, 429]
        refused = census.queued()
        assert billing.queued().status_code == 200
        assert census.move("00000000000000000000", "INFLIGHT").status_code == 404
    assert 86_000 < int(refused["Retry-After"]) <= 86_400
    assert refused["Content-Type"].startswith("text/plain")


def test_a_caller_without_a_token_does_not_count_for_others(callers: tuple[Caller, Caller]) -> None:
    census, _billing = callers
    stranger = Caller(census.subscription)
    stranger.tokens = {}
    with override_settings(PULLJOBS={"THROTTLES": {"queued-jobs": "1/day"}}):
        assert {stranger.queued().status_code for _call in range(3)} == {403}
        assert census.queued().status_code == 200


def test_what_a_user_shows_is_not_kept(db: None) -> None:
    """Calls of a user are counted by the user's id, so that the cache never has the token."""
    user("a-live-token", "view")
    manager = Manager("a-live-token")
    with override_settings(PULLJOBS={"THROTTLES": {"channels": "1/day"}}):
        assert [manager.get("/channels").status_code for _call in range(2)] == [200, 429]
    kept: Any = caches["default"]
    [key] = kept._cache
    assert "a-live-token" not in key


def test_a_user_has_one_count_however_it_logs_in(db: None) -> None:
    row = user("a-live-token", "view")
    lazy = SimpleLazyObject(lambda: row)
    with override_settings(PULLJOBS={"THROTTLES": {"channels": "1/day"}}):
        assert seconds_to_wait("channels", row) is None
        assert seconds_to_wait("channels", lazy) is not None


def test_no_request_is_refused_while_the_cache_fails(
    callers: tuple[Caller, Caller], settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.CACHES = {"default": {"BACKEND": "tests.access.test_throttling.BrokenCache"}}
    with override_settings(PULLJOBS={"THROTTLES": {"queued-jobs": "1/day"}}):
        assert [callers[0].queued().status_code for _call in range(3)] == [200, 200, 200]
    assert caplog.messages == ["The default cache failed to count a request: OSError: refused"]


def test_an_address_that_the_cache_refuses_as_a_key_is_limited() -> None:
    """Here it is too long for memcached. A caller may send any address without a proxy."""
    with override_settings(PULLJOBS={"THROTTLES": {"openapi": "1/day"}}):
        assert seconds_to_wait("openapi", "x" * 300) is None
        assert seconds_to_wait("openapi", "x" * 300) is not None


def test_calls_are_forgotten_with_their_period(
    callers: tuple[Caller, Caller], monkeypatch: pytest.MonkeyPatch
) -> None:
    census = callers[0].subscription.consumer
    now = [1_000_000.0]
    monkeypatch.setattr("pulljobs.api.throttling.RateWindow.timer", lambda self: now[0])
    with override_settings(PULLJOBS={"THROTTLES": {"pull": "2/m"}}):
        first = [seconds_to_wait("pull", census) for _call in range(3)]
        now[0] += 61
        assert seconds_to_wait("pull", census) is None
    assert first[:2] == [None, None]
    assert first[2] == pytest.approx(60, abs=1)


@pytest.mark.parametrize("rate", ["100", "0/s", "x/s", "100/fortnight", "-1/s", 100, None])
def test_a_check_names_an_invalid_rate(rate: object) -> None:
    with override_settings(PULLJOBS={"THROTTLES": {"pull": rate}}):
        [problem] = [check for check in run_checks() if str(check.id).startswith("pulljobs")]
    assert problem.id == "pulljobs.E010"


def test_a_check_names_a_scope_without_a_route() -> None:
    """A rate for a misspelt scope, which limits nothing, is an error of the system checks."""
    with override_settings(PULLJOBS={"THROTTLES": {"queued-job": "1/s"}}):
        [problem] = [check for check in run_checks() if str(check.id).startswith("pulljobs")]
    assert (problem.id, "did you mean 'queued-jobs'" in str(problem)) == ("pulljobs.E006", True)


def test_scopes_are_the_routes_but_those_of_health() -> None:
    """THROTTLES may have a rate for each route of the API but /livez and /readyz, by its name."""
    assert {route.name for route in routes()} - {"livez", "readyz"} == SCOPES | hooks.api_scopes
