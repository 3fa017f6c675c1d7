"""API for the HTTP clients of a run: `uvicorn benchmarks.faults.web:application`."""

from django.core.asgi import get_asgi_application

from pulljobs.api.asgi import with_pulls

application = with_pulls(get_asgi_application())
