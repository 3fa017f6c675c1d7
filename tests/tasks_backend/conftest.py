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
    """Tasks of a project whose backend is ours, in a worker that has found its handlers.

    Its parameter, if any: more OPTIONS.
    """
    backends = {
        "default": {
            "BACKEND": "pulljobs.tasks_backend.PullJobsBackend",
            "QUEUES": ["default", "receipts"],
            "OPTIONS": OPTIONS | getattr(request, "param", {}),
        }
    }
    with registry_of_its_own(), override_settings(TASKS=backends):
        read_again()
        backend = task_backends["default"]
        assert isinstance(backend, PullJobsBackend)
        handler.register(backend)
        from tests.tasks_backend import declared

        yield declared
    read_again()


def read_again() -> None:
    """What `TASKS` says, as a process that starts does."""
    backends: Any = task_backends
    backends._connections = Local(backends.thread_critical)
    backends.__dict__.pop("settings", None)
