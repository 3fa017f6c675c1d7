import psycopg
from django.db import OperationalError, connection


def pytest_report_header() -> str:
    try:
        # Not a connection of Django's: pytest-django forbids those outside of tests.
        with psycopg.connect(**connection.get_connection_params()) as direct:
            version = direct.info.parameter_status("server_version")
    except (OperationalError, psycopg.OperationalError) as error:
        return f"database: none, {error}"
    return f"database: PostgreSQL {version} at {connection.settings_dict['HOST']}"
