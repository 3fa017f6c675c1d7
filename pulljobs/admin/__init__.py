"""Django's admin: the registry to edit, jobs and their archive to look at and act on.

The commands show the figures of the dashboard in projects without Django's admin as well. Such a
project has no site to register models with.
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
