"""Django's PostgreSQL backend over the embedded server; the name `base` is Django's."""

from typing import Any

from django.db.backends.postgresql import base
from django.db.utils import OperationalError

from example_project.postgres.errors import EmbeddedPostgresError
from example_project.postgres.launcher import ensure_running
from example_project.postgres.place import PORT


class DatabaseWrapper(base.DatabaseWrapper):
    def get_connection_params(self) -> dict[str, Any]:
        """Plain psycopg parameters of a server that is up."""
        try:
            self.settings_dict["HOST"] = str(ensure_running())
        except EmbeddedPostgresError as error:
            raise OperationalError(str(error)) from None
        self.settings_dict["PORT"] = str(PORT)
        return super().get_connection_params()
