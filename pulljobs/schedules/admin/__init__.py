"""Pages of schedules in Django's admin: list, form, history and actions."""

from pulljobs.schedules.admin import pages

__all__ = ["pages"]
