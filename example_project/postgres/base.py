"""Database backend for Django on the embedded server. Django prescribes the name `base`."""

from typing import Any

from django.db.backends.postgresql import base
from django.db.utils import OperationalError

from example_project.postgres.errors import EmbeddedPostgresError
from example_project.postgres.launcher import ensure_running
from example_project.postgres.place import PORT


class DatabaseWrapper(base.DatabaseWrapper):
    def get_connection_params(self) -> dict[str, Any]:
        """Start the server if it does not run, and return parameters for psycopg."""
        try:
            self.settings_dict["HOST"] = str(ensure_running())
        except EmbeddedPostgresError as error:
            raise OperationalError(str(error)) from None
        self.settings_dict["PORT"] = str(PORT)
        return super().get_connection_params()
