"""The first thing a child process imports: it must not touch Django before `setup`."""

from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pulljobs.worker.pool import Slots


def start(order: bytes, slots: "Slots", supervisor: Connection) -> None:
    """Set Django up, find the handlers and work; `order` is a pickled `Order`."""
    import pickle

    import django

    django.setup()
    from pulljobs import handlers
    from pulljobs.worker import child

    handlers.autodiscover()
    child.work(pickle.loads(order), slots, supervisor)
