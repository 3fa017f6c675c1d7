"""Checks of pulljobs without those of Django's models, which connect from Django 6.1 on."""

import pytest
from django.core.checks.registry import registry


@pytest.fixture
def only_own_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register only the checks of pulljobs, because nothing connects to the aliases of a test."""
    own = {each for each in registry.registered_checks if each.__module__.startswith("pulljobs")}
    monkeypatch.setattr(registry, "registered_checks", own)
