"""ASGI application of the example project."""

import gc
import os

from django.core.asgi import get_asgi_application

from pulljobs.api.asgi import with_pulls

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
application = with_pulls(get_asgi_application())

# Hundreds of waiting pulls have so many objects that the garbage collector would often stop Python
# to search them and everything that Django has loaded.
gc.collect()
gc.freeze()
gc.set_threshold(20_000, 10, 10)
