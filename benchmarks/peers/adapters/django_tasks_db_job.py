"""Task of django-tasks-db, in a module that its worker can import."""

import common

try:
    from django.tasks import task
except ImportError:  # Before Django 6.
    from django_tasks import task


@task
def job(payload):
    common.handle(payload)
