"""Settings of the compared Django queues: the database that PG* name, and the app of each."""

import os

SECRET_KEY = "benchmark"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ["PGDATABASE"],
        "USER": os.environ["PGUSER"],
        "PASSWORD": os.environ.get("PGPASSWORD", ""),
        "HOST": os.environ["PGHOST"],
        "PORT": os.environ["PGPORT"],
        # Workers keep their connection; the default closes it after every job.
        "CONN_MAX_AGE": 600,
    }
}
LOGGING = {"version": 1, "disable_existing_loggers": False, "root": {"level": "WARNING"}}

if os.environ["PEER_NAME"].startswith("pulljobs"):
    INSTALLED_APPS = [
        "django.contrib.contenttypes",
        "django.contrib.auth",
        "django.contrib.postgres",
        "pulljobs",
        "pulljobs_app",
    ]
elif os.environ["PEER_NAME"] == "django-tasks-db":
    INSTALLED_APPS = ["django_tasks_db"]
    TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}}
else:
    INSTALLED_APPS = ["django_q"]
    CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    Q_CLUSTER = {
        "name": "peers",
        "orm": "default",
        "workers": int(os.environ.get("PEER_PROCESSES", "1")),
        "bulk": 100,
        "queue_limit": 500,
        "poll": 0.1,
        "timeout": 60,
        "retry": 120,
        # Workers stay; what went well is not saved, which halves the work of its one monitor.
        "recycle": 1_000_000,
        "save_limit": -1,
        "scheduler": False,
        "log_level": "WARNING",
    }
