from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from asgiref.local import Local
from django.test import override_settings

from pulljobs.tasks_backend import PullJobsBackend, handler
from pulljobs.tasks_backend.interface import task_backends
from tests.handling import registry_of_its_own

OPTIONS = {"max_retries": 2, "retry_strategy": "constant:0"}


@pytest.fixture
def tasks(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """Yield the module with the tasks of a project, which the backend of pulljobs serves.

    The handlers are registered, as in a worker. A parameter of the fixture adds to the OPTIONS.
    """
    backends = {
        "default": {
            "BACKEND": "pulljobs.tasks_backend.PullJobsBackend",
            "QUEUES": ["default", "receipts"],
            "OPTIONS": OPTIONS | getattr(request, "param", {}),
        }
    }
    with registry_of_its_own(), override_settings(TASKS=backends):
        reload_backends()
        backend = task_backends["default"]
        assert isinstance(backend, PullJobsBackend)
        handler.register(backend)
        from tests.tasks_backend import declared

        yield declared
    reload_backends()


def reload_backends() -> None:
    """Read `TASKS` again, as a new process does."""
    backends: Any = task_backends
    backends._connections = Local(backends.thread_critical)
    backends.__dict__.pop("settings", None)
