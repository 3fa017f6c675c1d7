"""Of the servers that these tests start: they compress what they answer."""

from tests.api.pull.settings import *  # noqa: F403
from tests.api.pull.settings import MIDDLEWARE

MIDDLEWARE = ["django.middleware.gzip.GZipMiddleware", *MIDDLEWARE]
