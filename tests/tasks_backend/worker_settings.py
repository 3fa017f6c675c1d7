"""Settings of worker processes that run the tasks of `declared.py`."""

from tests.worker.settings import *  # noqa: F403

TASKS = {
    "default": {
        "BACKEND": "pulljobs.tasks_backend.PullJobsBackend",
        "QUEUES": ["default", "receipts"],
    }
}
