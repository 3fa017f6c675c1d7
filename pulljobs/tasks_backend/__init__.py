"""Django's own tasks, `django.tasks`, done as jobs.

    TASKS = {"default": {"BACKEND": "pulljobs.tasks_backend.PullJobsBackend"}}

A task that is enqueued is a message on the channel of its queue, published in the caller's
transaction; `runpullworker` runs it.
"""

from pulljobs.tasks_backend.backend import PullJobsBackend

__all__ = ["PullJobsBackend"]
