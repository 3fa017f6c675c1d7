"""Fixture that leaves out the checks of Django, which connect to databases from Django 6.1 on."""

import pytest
from django.core.checks.registry import registry


@pytest.fixture
def only_own_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register only the checks of pulljobs: the aliases of these tests are of no real database."""
    own = {each for each in registry.registered_checks if each.__module__.startswith("pulljobs")}
    monkeypatch.setattr(registry, "registered_checks", own)
