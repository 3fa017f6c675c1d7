"""Of the servers that these tests start: they compress what they answer."""

from tests.api.leases.settings import *  # noqa: F403
from tests.api.leases.settings import MIDDLEWARE

MIDDLEWARE = ["django.middleware.gzip.GZipMiddleware", *MIDDLEWARE]
