"""Settings of the servers of these tests, which compress their answers.

A server stays for all tests of its process. It reaps nothing, or it would take overdue leases from
the tests of other folders that follow on the same database.
"""

from tests.api.leases.settings import *  # noqa: F403
from tests.api.leases.settings import MIDDLEWARE, PULLJOBS

MIDDLEWARE = ["django.middleware.gzip.GZipMiddleware", *MIDDLEWARE]
PULLJOBS = {**PULLJOBS, "REAP_WHILE_SERVING": False}
