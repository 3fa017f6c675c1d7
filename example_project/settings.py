"""Settings of the example project. An import starts no server and opens no connection."""

from typing import Any

import environ

from example_project.state import BASE_DIR, secret_key, state_directory
from pulljobs.engine.connection_bounds import with_bounds

env = environ.Env()

SECRET_KEY = env.str("SECRET_KEY", default="") or secret_key()
DEBUG = env.bool("DEBUG", default=True)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",  # Django 6 requires it for models with an array
    "rest_framework",
    "rest_framework.authtoken",
    "pulljobs",
    "pulljobs.lake",
    "pulljobs.schedules",
    "pulljobs.workflows",
    "example_project.census",
]

MIDDLEWARE = [
    "pulljobs.api.middleware.request_id",
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "example_project.urls"
WSGI_APPLICATION = "example_project.wsgi.application"
ASGI_APPLICATION = "example_project.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

# The embedded server starts when the first connection asks for it, see example_project/postgres.
EMBEDDED: dict[str, Any] = {
    "ENGINE": "example_project.postgres",
    "NAME": "pulljobs",
    "USER": "pulljobs",
}
DATABASES = {"default": env.db("DATABASE_URL") if env.str("DATABASE_URL", "") else EMBEDDED}
# A network connection ends if the server falls silent. The options do nothing on a Unix socket.
if DATABASES["default"]["ENGINE"].endswith("postgresql"):  # `check` refuses any other
    DATABASES["default"]["OPTIONS"] = with_bounds(DATABASES["default"].get("OPTIONS", {}))
# Behind a pooler in transaction mode a server connection may change hands between transactions.
DATABASES["default"]["DISABLE_SERVER_SIDE_CURSORS"] = env.bool("DATABASE_POOLED", False)
# So that several test runs can share a server.
DATABASES["default"]["TEST"] = {"NAME": env.str("TEST_DATABASE", default="") or None}
# For tests only: the tables of pulljobs are in a second database of that server. The demo does not
# migrate it, and its transactions do not span both: docs/guides/separate-database.md.
JOBS_DATABASE = env.str("JOBS_DATABASE", default="")
if not JOBS_DATABASE and env.str("PULLJOBS_TEST_SECOND", default="") == "1":
    JOBS_DATABASE = "jobs"
if JOBS_DATABASE:
    DATABASES["jobs"] = {
        **DATABASES["default"],
        "NAME": JOBS_DATABASE,
        "USER": env.str("JOBS_ROLE", default=DATABASES["default"].get("USER", "")),
        "TEST": {"NAME": f"{env.str('TEST_DATABASE', default='') or 'test_pulljobs'}_jobs"},
    }
    DATABASE_ROUTERS = ["pulljobs.routers.PulljobsRouter"]
    SILENCED_SYSTEM_CHECKS = ["pulljobs.I001"]  # it warns of a separate database, wanted here
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

PULLJOBS = {
    "DATABASE": "jobs" if JOBS_DATABASE else "default",
    "LAKE": env.str("LAKE", default="") or str(state_directory() / "lake"),
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"request_id": {"()": "pulljobs.api.middleware.RequestIdFilter"}},
    "formatters": {"plain": {"format": "%(levelname)s [%(request_id)s] %(name)s: %(message)s"}},
    "handlers": {
        "console": {
            "class": "logging.StreamHandler",
            "filters": ["request_id"],
            "formatter": "plain",
        }
    },
    "root": {"handlers": ["console"], "level": env.str("LOG_LEVEL", default="WARNING")},
}

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True

STATIC_URL = "static/"
STATIC_ROOT = BASE_DIR / ".pulljobs" / "static"
