import gc
import os

from django.core.asgi import get_asgi_application

from pulljobs.api.asgi import with_pulls

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
application = with_pulls(get_asgi_application())

# Hundreds of pulls that wait are so many objects that Python would stop every few moments to look
# through them, and through all that Django has loaded.
gc.collect()
gc.freeze()
gc.set_threshold(20_000, 10, 10)
