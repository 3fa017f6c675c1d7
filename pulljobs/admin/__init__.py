"""Django's admin: the registry to edit, jobs and their archive to look at and act on."""

from pulljobs.admin import archive, audit, jobs, nodes, registry
from pulljobs.admin.dashboard import page as dashboard

__all__ = ["archive", "audit", "dashboard", "jobs", "nodes", "registry"]
