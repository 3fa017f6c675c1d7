"""API of pulljobs as an ASGI application: `uvicorn benchmarks.web_asgi:application`."""

import os

from django.core.asgi import get_asgi_application

from pulljobs.api.asgi import tune_process, with_pulls

os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.web_settings"
application = with_pulls(get_asgi_application())
tune_process()
