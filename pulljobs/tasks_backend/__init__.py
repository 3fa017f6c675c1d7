"""Backend for Django's tasks, `django.tasks`, that runs them as jobs.

    TASKS = {"default": {"BACKEND": "pulljobs.tasks_backend.PullJobsBackend"}}

Enqueueing a task publishes a message on the channel of its queue, in the caller's transaction.
`runpullworker` runs it.
"""

from pulljobs.tasks_backend.backend import PullJobsBackend
from pulljobs.tasks_backend.options import task_options

__all__ = ["PullJobsBackend", "task_options"]
