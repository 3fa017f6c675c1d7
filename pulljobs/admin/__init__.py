"""Pages of Django's admin: channels, producers and consumers to edit, jobs to look at and act on.

The pages are registered only where `django.contrib.admin` is installed. Commands such as
`pulljobs top` import modules of this package in projects without it as well.
"""

from django.apps import apps

if apps.is_installed("django.contrib.admin"):
    from pulljobs.admin import (
        archive,
        audit,
        clients,
        jobs,
        limit_groups,
        nodes,
        registry,
        scheduled,
    )
    from pulljobs.admin.dashboard import page as dashboard

    __all__ = [
        "archive",
        "audit",
        "clients",
        "dashboard",
        "jobs",
        "limit_groups",
        "nodes",
        "registry",
        "scheduled",
    ]
