"""Django's admin of schedules: pages to look at them, to change them and to act on them."""

from pulljobs.schedules.admin import pages

__all__ = ["pages"]
