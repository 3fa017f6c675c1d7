"""ASGI application of the example project."""

import os

from django.core.asgi import get_asgi_application

from pulljobs.api.asgi import tune_process, with_pulls

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
application = with_pulls(get_asgi_application())
tune_process()
