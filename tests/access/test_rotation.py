"""`manage.py pulljobs rotatetokens` encrypts every stored token with the newest key."""

import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from pulljobs import encryption, tokens
from pulljobs.models import Channel, Consumer, Producer
from pulljobs.models.token_holders import TokenHolder
from tests.access.keys import new_key, sealed_by

pytestmark = pytest.mark.django_db


def rotate(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    call_command("pulljobs", "rotatetokens", "--json")
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def token_holders() -> list[TokenHolder]:
    channel, producer = Channel(name="orders"), Producer(name="shop")
    channel.save()
    producer.save()
    consumer = Consumer(name="billing", channel=channel)
    consumer.save()
    return [channel, producer, consumer]


def test_all_are_resealed_once_and_keep_their_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    old, new = new_key(), new_key()
    with sealed_by(old):
        made = token_holders()
        shown = [token_holder.shown_token() for token_holder in made]
    with sealed_by(new, old):
        first, second = rotate(capsys), rotate(capsys)
    assert (first["resealed"], first["kept"]) == (3, 0)
    assert (second["resealed"], second["kept"]) == (0, 3)
    for token_holder, changed_at in [(holder, holder.changed_at) for holder in made]:
        token_holder.refresh_from_db()
        assert token_holder.changed_at == changed_at
    with sealed_by(new):
        assert [token_holder.shown_token() for token_holder in made] == shown


def test_signing_secrets_are_resealed_too() -> None:
    old, new = new_key(), new_key()
    with sealed_by(old):
        *_others, billing = token_holders()
        assert isinstance(billing, Consumer)
        secret = billing.set_signing_secret()
        billing.save()
    with sealed_by(new, old):
        assert tokens.rotate().resealed == 4
    with sealed_by(new):
        assert Consumer.objects.get().signing_secrets() == [secret]


def test_who_can_t_be_opened_is_named_and_still_known(capsys: pytest.CaptureFixture[str]) -> None:
    """A token that no key decrypts stays as it is, and the output names its row."""
    with sealed_by(new_key()):
        *_others, billing = token_holders()
    Channel.objects.update(token_sealed="")
    stored = Producer.objects.values().get(), Consumer.objects.values().get()
    with sealed_by(new_key()):
        output = rotate(capsys)
        assert (Producer.objects.values().get(), Consumer.objects.values().get()) == stored
        assert output == {
            "resealed": 0,
            "kept": 0,
            "unreadable": ["producer shop", "consumer orders/billing"],
            "without_copy": 1,
        }
        billing.set_token("a new one")
        billing.save()
        assert rotate(capsys)["kept"] == 1


def test_a_token_set_meanwhile_is_not_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new token that is set between the command's read and write of the row is kept."""
    old, new = new_key(), new_key()
    with sealed_by(old):
        Channel.objects.create(name="orders")
    seal = encryption.seal

    def overtaken(token: str) -> str:
        monkeypatch.undo()
        channel = Channel.objects.get()
        channel.set_token("the new one")
        channel.save()
        return seal(token)

    with sealed_by(new, old):
        monkeypatch.setattr(encryption, "seal", overtaken)
        assert tokens.rotate().resealed == 0
        assert Channel.objects.get().shown_token() == "the new one"


def test_without_cryptography_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encryption, "find_spec", lambda name: None)
    with pytest.raises(CommandError, match="pip install cryptography"):
        call_command("pulljobs", "rotatetokens")
