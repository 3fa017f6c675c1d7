"""A token can be shown again with the key, and is compared by its digest only."""

import pytest
from django.core.checks import run_checks
from django.test import override_settings

from pulljobs import encryption
from pulljobs.models import Channel
from tests.access.keys import new_key, sealed_by

pytestmark = pytest.mark.django_db


def stored(token: str, **fields: str) -> Channel:
    channel = Channel(name="orders")
    channel.set_token(token)
    for name, value in fields.items():
        setattr(channel, name, value)
    channel.save()
    return Channel.objects.get()


def problem_ids() -> list[str | None]:
    return [check.id for check in run_checks() if str(check.id).startswith("pulljobs")]


def test_a_token_is_shown_as_it_was_set_and_not_stored_in_clear() -> None:
    channel = stored("grün & geheim")
    assert channel.shown_token() == "grün & geheim"
    assert "geheim" not in str(Channel.objects.values().get())


def test_a_random_token_is_sealed_too() -> None:
    channel = Channel(name="orders")
    channel.save()
    assert channel.has_token(channel.shown_token() or "")


def test_an_old_row_without_a_copy_is_known_by_its_token_and_shows_none() -> None:
    channel = stored("old", token_sealed="")
    assert (channel.has_token("old"), channel.shown_token()) == (True, None)


@pytest.mark.parametrize("copy", ["nonsense", "\u2603", "gAAAAAB"])
def test_a_copy_that_no_key_opens_shows_nothing_and_breaks_nothing(copy: str) -> None:
    channel = stored("secret", token_sealed=copy)
    assert (channel.has_token("secret"), channel.shown_token()) == (True, None)


def test_the_copy_of_another_is_not_shown() -> None:
    """An encrypted token copied from another row is not shown: the row's digest differs."""
    channel = stored("mine", token_sealed=encryption.seal("of another"))
    assert (channel.shown_token(), channel.has_token("of another")) == (None, False)


def test_the_first_key_seals_and_all_open() -> None:
    old, new = new_key(), new_key()
    with sealed_by(old):
        channel = stored("secret")
    with sealed_by(new, old):
        assert channel.shown_token() == "secret"
        assert not encryption.is_newest(channel.token_sealed)
        assert encryption.is_newest(encryption.seal("another"))
    with sealed_by(new):
        assert channel.shown_token() is None


def test_what_an_older_secret_key_has_sealed_is_opened_as_a_fallback() -> None:
    with override_settings(SECRET_KEY="older"):
        channel = stored("secret")
    with override_settings(SECRET_KEY="newer", SECRET_KEY_FALLBACKS=["older"]):
        assert channel.shown_token() == "secret"
    with override_settings(SECRET_KEY="newer"):
        assert channel.shown_token() is None


def test_keys_of_one_s_own_open_what_the_secret_key_has_sealed() -> None:
    channel = stored("secret")
    with sealed_by(new_key()):
        assert channel.shown_token() == "secret"


def test_without_cryptography_nothing_is_sealed_and_a_check_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = stored("secret")
    monkeypatch.setattr(encryption, "find_spec", lambda name: None)
    after = Channel(name="files")
    after.set_token("another")
    assert (after.token_sealed, after.has_token("another")) == ("", True)
    assert (before.shown_token(), before.has_token("secret")) == (None, True)
    assert problem_ids() == ["pulljobs.W001"]


@pytest.mark.parametrize("keys", [["short"], ["\u2603"], [None], [new_key(), ""]])
def test_a_check_names_an_invalid_key_without_its_text(keys: list[str]) -> None:
    with override_settings(PULLJOBS={"TOKEN_KEYS": keys}):
        [problem] = [check for check in run_checks() if str(check.id).startswith("pulljobs")]
    assert problem.id == "pulljobs.E012"
    assert "short" not in str(problem)


def test_a_secret_of_the_wrong_type_is_not_repeated() -> None:
    with override_settings(PULLJOBS={"TOKEN_KEYS": "my-secret-key"}):
        [problem] = [check for check in run_checks() if str(check.id).startswith("pulljobs")]
    assert (problem.id, "my-secret-key" in str(problem)) == ("pulljobs.E003", False)
