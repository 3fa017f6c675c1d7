"""The guide on capacity shows what its commands print, and its code spreads jobs over databases."""

import shlex
import sys
from collections.abc import Iterator
from io import StringIO
from types import ModuleType

import pytest
from django.core.management import call_command

from pulljobs.models import Message
from tests.factories import USING, ConsumerFactory
from tests.guides import forget, modules_of, texts

GUIDE = "docs/guides/capacity.md"


@pytest.fixture
def code() -> Iterator[dict[str, ModuleType]]:
    sys.modules["shop"] = ModuleType("shop")
    common = sys.modules["shop.settings"] = ModuleType("shop.settings")
    common.__dict__["PULLJOBS"] = {"RETENTION": None}
    try:
        yield modules_of("guides/capacity.md")
    finally:
        forget("shop")


@pytest.mark.parametrize("number", range(len(texts(GUIDE, "sh"))))
def test_the_calculator_prints_what_the_guide_shows(number: int) -> None:
    output = StringIO()
    _python, _manage, *words = shlex.split(texts(GUIDE, "sh")[number])
    call_command(*words, stdout=output)
    assert output.getvalue() == texts(GUIDE, "text")[number]


@pytest.mark.django_db(transaction=True)
def test_jobs_of_a_key_are_published_in_one_database(
    code: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert code["shop.settings_b"].PULLJOBS == {"RETENTION": None, "DATABASE": "jobs_b"}
    spreading = code["shop.spreading"]
    assert spreading.DATABASES == ("jobs", "jobs_b")
    monkeypatch.setattr(spreading, "DATABASES", (USING, USING))
    channel = ConsumerFactory.create().channel.name
    spreading.publish_spread(channel, {"order": 1}, "red")
    assert Message.objects.get().key == "red"
