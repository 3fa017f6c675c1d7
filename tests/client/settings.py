"""Settings of the servers of these tests, which compress their answers."""

from tests.api.leases.settings import *  # noqa: F403
from tests.api.leases.settings import MIDDLEWARE

MIDDLEWARE = ["django.middleware.gzip.GZipMiddleware", *MIDDLEWARE]
