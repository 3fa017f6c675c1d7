"""Django's admin: the registry to edit, jobs and their archive to look at and act on."""

from pulljobs.admin import archive, jobs, nodes, registry

__all__ = ["archive", "jobs", "nodes", "registry"]
