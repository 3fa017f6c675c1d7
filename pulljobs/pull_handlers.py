"""Registration of the handlers that run Django's tasks, if TASKS names a `PullJobsBackend`."""

from importlib.util import find_spec

if find_spec("django.tasks") or find_spec("django_tasks"):
    from pulljobs.tasks_backend import PullJobsBackend, handler
    from pulljobs.tasks_backend.interface import task_backends

    for backend in task_backends.all():
        if isinstance(backend, PullJobsBackend):
            handler.register(backend)
