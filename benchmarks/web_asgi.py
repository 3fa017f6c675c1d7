"""API of pulljobs as an ASGI application: `uvicorn benchmarks.web_asgi:application`."""

import gc
import os

from django.core.asgi import get_asgi_application

from pulljobs.api.asgi import with_pulls

os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.web_settings"
application = with_pulls(get_asgi_application())
gc.collect()
gc.freeze()
gc.set_threshold(20_000, 10, 10)
